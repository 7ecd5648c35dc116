use std::io::Write as _;

use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;

fn file(bytes: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

fn whole(bytes: &[u8]) -> (Arc<File>, Result<Directory, ArchiveError>) {
    let file = file(bytes);
    let directory =
        Directory::read(Partial::new(Arc::clone(&file), bytes.len() as u64, |_, _| true), &Bounds::default());
    (file, directory)
}

fn pack(members: &[(&str, &[u8], SimpleFileOptions)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(io::Cursor::new(Vec::new()));
    for (name, content, options) in members {
        writer.start_file(*name, *options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn stored() -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(CompressionMethod::Stored)
}

fn deflated() -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(CompressionMethod::Deflated)
}

fn found(directory: &mut Directory, path: &str) -> Member {
    match directory.find(path) {
        Found::Member(member) => member,
        other => panic!("{path}: {other:?}"),
    }
}

fn streamed(member: Member, file: &Arc<File>) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut stream = member.stream(Arc::clone(file)).map_err(|error| error.to_string())?;
    stream.read_to_end(&mut out).map_err(|error| error.to_string())?;
    Ok(out)
}

#[test]
fn members_of_every_form_are_read() {
    let text = b"words and more words, ".repeat(5000);
    let plain = pack(&[
        ("stored", &text, stored()),
        ("deep/er/deflated", &text, deflated()),
        ("zip64", &text, deflated().large_file(true)),
        ("empty", b"", stored()),
        ("empty deflated", b"", deflated()),
    ]);
    // Without going back, sizes follow the data: data descriptors.
    let mut writer = ZipWriter::new_stream(Vec::new());
    for (name, options) in
        [("stored", stored()), ("deep/er/deflated", deflated()), ("zip64", deflated().large_file(true))]
    {
        writer.start_file(name, options).unwrap();
        writer.write_all(&text).unwrap();
    }
    let described = writer.finish().unwrap().into_inner();
    for bytes in [plain, described] {
        let (file, directory) = whole(&bytes);
        let mut directory = directory.unwrap();
        for name in ["stored", "/stored", "deep/er/deflated", "/deep/er/deflated", "./zip64"] {
            let member = found(&mut directory, name);
            assert_eq!(member.content(&file).unwrap(), text, "{name}");
            assert_eq!(streamed(member, &file).unwrap(), text, "{name}");
        }
        if let Found::Member(member) = directory.find("empty") {
            assert_eq!(member.content(&file).unwrap(), b"");
            let member = found(&mut directory, "empty deflated");
            assert_eq!(streamed(member, &file).unwrap(), b"");
        }
        assert_eq!(directory.unused(), 0);
        assert_eq!(directory.find("nothing"), Found::Missing);
    }
}

#[test]
fn a_package_that_is_not_complete_says_what_it_lacks() {
    let text = b"words and more words, ".repeat(50_000);
    let bytes = pack(&[("one", &text, stored()), ("two", &text, stored())]);
    let size = bytes.len() as u64;
    let file = file(&bytes);
    let mut here = vec![(0, 64)];
    let mut asked = 0;
    let mut directory = loop {
        let parts = here.clone();
        let covered = move |begin: u64, end: u64| parts.iter().any(|(from, to)| *from <= begin && end <= *to);
        match Directory::read(Partial::new(Arc::clone(&file), size, covered), &Bounds::default()) {
            Ok(directory) => break directory,
            Err(ArchiveError::Hole(at)) => here.push((at.saturating_sub(4096), (at + 4096).min(size))),
            Err(error) => panic!("{error}"),
        }
        asked += 1;
        assert!(asked < 20, "{here:?}");
    };
    assert!(here.iter().all(|(begin, end)| end - begin <= 8192), "the members were not needed");
    assert_eq!(found(&mut directory, "two").content(&file).unwrap(), text);
}

#[test]
fn what_is_no_package_is_said_to_be_none() {
    for bytes in
        [&b""[..], b"PK", b"<html>not found</html>", &[0; 100_000], b"PK\x03\x04 and no directory at all, ever"]
    {
        let (_, directory) = whole(bytes);
        assert!(matches!(directory, Err(ArchiveError::NotZip(_))), "{directory:?}");
    }
}

#[test]
fn names_that_lead_out_links_and_devices_are_refused() {
    let foul = ["../up", "a/../../up", "/../up", "C:\\x", "\\\\host\\x", "a\\..\\x"];
    // The writer tidies names, so they are put in afterwards.
    let fair = |at: usize| format!("{at}{}", "x".repeat(foul[at].len()));
    let mut writer = ZipWriter::new(io::Cursor::new(Vec::new()));
    for at in 0..foul.len() {
        writer.start_file(fair(at), stored()).unwrap();
        writer.write_all(b"content").unwrap();
    }
    writer.add_symlink("link", "/etc/passwd", stored()).unwrap();
    writer.start_file("fair", stored()).unwrap();
    writer.write_all(b"fair content").unwrap();
    let mut bytes = writer.finish().unwrap().into_inner();
    for (at, name) in foul.iter().enumerate() {
        replace(&mut bytes, fair(at).as_bytes(), format!("{name}y").as_bytes());
    }
    let (file, directory) = whole(&bytes);
    let mut directory = directory.unwrap();
    for name in foul.iter().map(|name| format!("{name}y")).chain(["link".to_owned()]) {
        let answer = directory.find(&name);
        assert!(matches!(answer, Found::Refused(_)), "{name}: {answer:?}");
    }
    assert_eq!(found(&mut directory, "fair").content(&file).unwrap(), b"fair content");
}

#[test]
fn a_member_whose_name_begins_with_a_slash_is_used() {
    let mut writer = ZipWriter::new(io::Cursor::new(Vec::new()));
    writer.start_file("xresources/one", stored()).unwrap();
    writer.write_all(b"content").unwrap();
    let mut bytes = writer.finish().unwrap().into_inner();
    replace(&mut bytes, b"xresources/one", b"/resources/one");
    let (file, directory) = whole(&bytes);
    let mut directory = directory.unwrap();
    for path in ["/resources/one", "resources/one"] {
        assert_eq!(found(&mut directory, path).content(&file).unwrap(), b"content", "{path}");
    }
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let at: Vec<usize> = (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert_eq!(at.len(), 2, "once in its local header, once in the directory");
    at.into_iter().for_each(|at| bytes[at..at + from.len()].copy_from_slice(to));
}

/// The directory entry of a name.
fn entry_at(bytes: &[u8], name: &[u8]) -> usize {
    (0..bytes.len() - name.len())
        .find(|at| bytes[*at..].starts_with(b"PK\x01\x02") && bytes[at + 46..].starts_with(name))
        .unwrap()
}

#[test]
fn duplicates_and_overlaps_are_refused_and_the_rest_is_not() {
    let mut bytes = pack(&[
        ("same-1", b"first", stored()),
        ("same-2", b"second", stored()),
        ("over-1", &[7; 500], stored()),
        ("over-2", &[8; 500], stored()),
        ("fair", b"fair content", stored()),
    ]);
    replace(&mut bytes, b"same-2", b"same-1");
    // The second of the two is said to begin within the first.
    let (first, second) = (entry_at(&bytes, b"over-1"), entry_at(&bytes, b"over-2"));
    let header = u32::from_le_bytes(bytes[first + 42..first + 46].try_into().unwrap()) + 100;
    bytes[second + 42..second + 46].copy_from_slice(&header.to_le_bytes());
    let (file, directory) = whole(&bytes);
    let mut directory = directory.unwrap();
    for name in ["same-1", "over-1", "over-2"] {
        let answer = directory.find(name);
        assert!(matches!(answer, Found::Refused(_)), "{name}: {answer:?}");
    }
    assert_eq!(found(&mut directory, "fair").content(&file).unwrap(), b"fair content");
}

#[test]
fn bombs_unfold_to_no_more_than_they_say() {
    let zeros = vec![0; 3 << 20];
    let mut bytes =
        pack(&[("declared", b"small", stored()), ("real", &zeros, deflated()), ("fair", b"fair", stored())]);
    // One says that it is huge; the other says that it is small, and is not.
    let declared = entry_at(&bytes, b"declared");
    bytes[declared + 24..declared + 28].copy_from_slice(&0xff00_0000_u32.to_le_bytes());
    let real = entry_at(&bytes, b"real");
    bytes[real + 24..real + 28].copy_from_slice(&10_000_u32.to_le_bytes());
    let (file, directory) = whole(&bytes);
    let mut directory = directory.unwrap();
    assert!(matches!(directory.find("declared"), Found::Refused(_)));
    let member = found(&mut directory, "real");
    let (at_once, in_steps) = (member.content(&file).unwrap_err().to_string(), streamed(member, &file).unwrap_err());
    assert!(
        at_once.contains("more than the 10000 bytes") && in_steps.contains("more than the 10000 bytes"),
        "{at_once}; {in_steps}"
    );
    assert_eq!(found(&mut directory, "fair").content(&file).unwrap(), b"fair");
}

#[test]
fn a_wrong_crc_a_wrong_offset_and_damaged_data_are_found() {
    let text = b"words and more words, ".repeat(500);
    let fair = pack(&[("one", &text, deflated()), ("two", &text, deflated())]);
    let entry = entry_at(&fair, b"one");
    let data = usize::try_from(found(&mut whole(&fair).1.unwrap(), "one").header).unwrap() + 40;
    for (what, at) in [("crc", entry + 16), ("offset", entry + 42), ("data", data)] {
        let mut bytes = fair.clone();
        bytes[at] ^= 0x15;
        let (file, directory) = whole(&bytes);
        let mut directory = directory.unwrap();
        let Found::Member(member) = directory.find("one") else { continue };
        assert!(member.content(&file).is_err(), "{what}");
        assert!(streamed(member, &file).is_err(), "{what}");
        assert_eq!(found(&mut directory, "two").content(&file).unwrap(), text);
    }
}

#[test]
fn a_directory_that_breaks_off_keeps_what_it_said() {
    let mut bytes = pack(&[("one", b"first", stored()), ("two", b"second", stored()), ("three", b"third", stored())]);
    let second = entry_at(&bytes, b"two");
    bytes[second] = b'X';
    let (file, directory) = whole(&bytes);
    let mut directory = directory.unwrap();
    assert!(directory.broken.as_ref().is_some_and(|why| why.contains("after 1 of 3")), "{:?}", directory.broken);
    assert_eq!(found(&mut directory, "one").content(&file).unwrap(), b"first");
    assert_eq!(directory.find("three"), Found::Missing);
}
