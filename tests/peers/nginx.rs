//! Packages as nginx serves them.

use std::fs;
use std::os::unix::fs::FileExt as _;

use crate::support::dump::{self, Item, manifest};
use crate::support::nginx::Nginx;
use crate::support::opened::Mirror;
use crate::support::{capability, document};

const EARLY: &str = "2026-01-01T00:00:00Z";

#[test]
fn packages_and_members_beyond_four_gibibytes() {
    let mut nginx = Nginx::prepare();
    let path = nginx.root().join("huge.zip");
    // A hole of five GiB, stored as a member of its own, and small members behind it.
    let hole = 5_u64 << 30;
    let small = b"a small member behind a huge one".to_vec();
    let items = [Item::new(&nginx.url("/r/small"), &small).stored()];
    let huge = Item::new(&nginx.url("/r/huge"), b"").saying(&format!("length=\"{hole}\"")).stored();
    let text = manifest(EARLY, &[items[0].clone(), huge.clone()]);
    zip64(
        &path,
        hole,
        &[("resources/small".into(), small.clone()), ("manifest.xml".into(), text.clone().into_bytes())],
    );
    let text = text.replace(&items[0].path, "/resources/small").replace(&huge.path, "/resources/huge");
    zip64(&path, hole, &[("resources/small".into(), small.clone()), ("manifest.xml".into(), text.into_bytes())]);
    let root = nginx.root().to_owned();
    let packages =
        [(nginx.url("/huge.zip"), format!("length=\"{}\"", fs::metadata(&path).unwrap().len()), String::new())];
    fs::write(root.join("resourcedump.xml"), dump::dump(&format!("at=\"{EARLY}\""), &packages)).unwrap();
    let offered = capability(&nginx.url("/resourcedump.xml"), "resourcedump");
    fs::write(root.join("capabilitylist.xml"), document("capabilitylist", "", "", &offered)).unwrap();
    nginx.start();
    // Too large for the cache: read by parts, so that nothing of the hole is fetched.
    let mirror = Mirror::mount(&nginx.url("/capabilitylist.xml"), "cache_size=100M");
    assert_eq!(mirror.files(), ["r/huge", "r/small"], "{:#}", mirror.status());
    assert_eq!(mirror.stat("r/huge").unwrap().size, hole);
    assert_eq!(mirror.read("r/small").unwrap(), small);
    assert_eq!(mirror.status()["error_count"], 0, "{}", mirror.errors());
}

/// Writes a package whose first member, `resources/huge`, is a hole of so many bytes, with ZIP64 records.
fn zip64(path: &std::path::Path, hole: u64, members: &[(String, Vec<u8>)]) {
    let file = fs::File::create(path).unwrap();
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        file.write_all_at(bytes, at).unwrap();
        at += bytes.len() as u64;
        at
    };
    let mut directory = Vec::new();
    let mut count = 0_u64;
    let local = |name: &str, size: u64, crc: u32| {
        let mut head = b"PK\x03\x04\x2d\0\0\0\0\0\0\0\0\0".to_vec();
        head.extend(crc.to_le_bytes());
        head.extend([0xff; 8]);
        head.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        head.extend(20_u16.to_le_bytes());
        head.extend(name.as_bytes());
        head.extend([1, 0, 16, 0]);
        head.extend(size.to_le_bytes());
        head.extend(size.to_le_bytes());
        head
    };
    let mut central = |name: &str, size: u64, crc: u32, header: u64| {
        directory.extend(b"PK\x01\x02\x2d\x03\x2d\0\0\0\0\0\0\0\0\0");
        directory.extend(crc.to_le_bytes());
        directory.extend([0xff; 8]);
        directory.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        directory.extend(28_u16.to_le_bytes());
        directory.extend([0; 10]);
        directory.extend([0xff; 4]);
        directory.extend(name.as_bytes());
        directory.extend([1, 0, 24, 0]);
        for value in [size, size, header] {
            directory.extend(value.to_le_bytes());
        }
        count += 1;
    };
    let huge = local("resources/huge", hole, 0);
    central("resources/huge", hole, 0, 0);
    put(&huge);
    let mut here = huge.len() as u64 + hole;
    for (name, content) in members {
        let crc = crc32fast::hash(content);
        let head = local(name, content.len() as u64, crc);
        central(name, content.len() as u64, crc, here);
        file.write_all_at(&head, here).unwrap();
        file.write_all_at(content, here + head.len() as u64).unwrap();
        here += (head.len() + content.len()) as u64;
    }
    let (begin, size) = (here, directory.len() as u64);
    let mut end = directory.clone();
    end.extend(b"PK\x06\x06");
    end.extend(44_u64.to_le_bytes());
    end.extend([0x2d, 3, 0x2d, 0]);
    end.extend([0; 8]);
    for value in [count, count, size, begin] {
        end.extend(value.to_le_bytes());
    }
    end.extend(b"PK\x06\x07\0\0\0\0");
    end.extend((begin + size).to_le_bytes());
    end.extend(1_u32.to_le_bytes());
    end.extend(b"PK\x05\x06");
    end.extend([0; 4]);
    end.extend([0xff; 12]);
    end.extend([0; 2]);
    file.write_all_at(&end, begin).unwrap();
}
