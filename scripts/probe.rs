//! probe - what scripts/bench times, without the start of a process in it.
//!
//!     probe xml FILE...          a bare quick-xml pass over documents: events, nothing kept
//!     probe stat LIST [ROUNDS]   lstat of every path in LIST, a line each
//!     probe read LIST [ROUNDS]   open, read to the end, close
//!     probe whole FILE           read from beginning to end, 1 MiB at a time
//!     probe random FILE SECONDS  pread of 4 KiB at random places
//!
//! Prints: how many, bytes, seconds.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RANDOM_READ: usize = 4096;

fn xml(files: &[String]) -> Result<(u64, u64)> {
    let (mut events, mut bytes) = (0, 0);
    let mut buffer = Vec::new();
    for path in files {
        let file = File::open(path)?;
        bytes += file.metadata()?.len();
        let mut reader = quick_xml::Reader::from_reader(std::io::BufReader::with_capacity(128 << 10, file));
        loop {
            buffer.clear();
            if reader.read_event_into(&mut buffer)? == quick_xml::events::Event::Eof {
                break;
            }
            events += 1;
        }
    }
    Ok((events, bytes))
}

fn lines(list: &str) -> Result<Vec<String>> {
    Ok(std::fs::read_to_string(list)?.lines().map(str::to_owned).collect())
}

fn stat(paths: &[String], rounds: u32) -> Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for _ in 0..rounds {
        for path in paths {
            bytes += std::fs::symlink_metadata(path)?.len();
            count += 1;
        }
    }
    Ok((count, bytes))
}

fn read(paths: &[String], rounds: u32) -> Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    let mut buffer = vec![0; 128 << 10];
    for _ in 0..rounds {
        for path in paths {
            let mut file = File::open(path)?;
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    read => bytes += read as u64,
                }
            }
            count += 1;
        }
    }
    Ok((count, bytes))
}

fn whole(path: &str) -> Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let (mut count, mut bytes) = (0, 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((count, bytes)),
            read => bytes += read as u64,
        }
        count += 1;
    }
}

fn random(path: &str, how_long: Duration) -> Result<(u64, u64)> {
    let file = File::open(path)?;
    let places = file.metadata()?.len() / RANDOM_READ as u64;
    let mut buffer = [0; RANDOM_READ];
    let mut count = 0;
    // The same places for all who are compared.
    let mut random = fastrand::Rng::with_seed(7);
    let begin = Instant::now();
    while count % 64 != 0 || begin.elapsed() < how_long {
        file.read_exact_at(&mut buffer, random.u64(0..places) * RANDOM_READ as u64)?;
        count += 1;
    }
    Ok((count, count * RANDOM_READ as u64))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = |at: usize| arguments.get(at).map_or(Ok(1), |rounds| rounds.parse());
    let Some((how, rest)) = arguments.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Err("probe xml FILE... | stat|read LIST [ROUNDS] | whole FILE | random FILE SECONDS".into());
    };
    let paths = if matches!(how.as_str(), "stat" | "read") { lines(&rest[0])? } else { Vec::new() };
    let begin = Instant::now();
    let (count, bytes) = match how.as_str() {
        "xml" => xml(rest)?,
        "stat" => stat(&paths, rounds(2)?)?,
        "read" => read(&paths, rounds(2)?)?,
        "whole" => whole(&rest[0])?,
        "random" => random(&rest[0], Duration::from_secs_f64(rest.get(1).map_or(Ok(2.0), |text| text.parse())?))?,
        other => return Err(format!("{other}: not known").into()),
    };
    println!("{count} {bytes} {:.6}", begin.elapsed().as_secs_f64());
    Ok(())
}
