use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::io::buffer::BufferPool;

/// A ring of each kind that this kernel lets us have; none, and said, where io_uring is refused.
fn rings(entries: u32) -> Vec<Ring<usize>> {
    let mut rings = Vec::new();
    for settings in Settings::ALL {
        match settings.build(entries, 64) {
            Ok(ring) => rings.push(Ring::over(ring, settings).unwrap()),
            Err(error) => eprintln!("skipped: a ring with {}: {error}", settings.name()),
        }
    }
    rings
}

fn file() -> Rc<Descriptor> {
    Rc::new(Descriptor { file: tempfile::tempfile().unwrap(), fixed: None })
}

fn write(file: &Rc<Descriptor>, at: u64, first: &'static [u8], second: &'static [u8]) -> Request {
    let (first, second) = (Bytes::from_static(first), Bytes::from_static(second));
    Request::Write { file: Rc::clone(file), at, first, second }
}

/// Waits for everything in flight; tags and results in the order of the tags.
fn finish(ring: &mut Ring<usize>) -> Vec<(usize, i32)> {
    let mut ended = Vec::new();
    while ring.in_flight > 0 {
        ring.enter(Enter::One).unwrap();
        ring.completed(&mut ended);
    }
    let mut results: Vec<(usize, i32)> = ended.iter().map(|(_, tag, result)| (*tag, *result)).collect();
    results.sort_unstable();
    results
}

#[test]
fn results_are_counts_or_errors() {
    assert_eq!(outcome(0).unwrap(), 0);
    assert_eq!(outcome(i32::MAX).unwrap(), 2_147_483_647);
    assert_eq!(outcome(-libc::EIO).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(outcome(i32::MIN).is_err());
}

#[test]
fn every_setting_does_the_same() {
    for entries in [1, 32] {
        for mut ring in rings(entries) {
            let file = file();
            for number in 0..40 {
                ring.start(write(&file, u64::try_from(number).unwrap() * 5, b"abc", b"de"), number);
            }
            assert_eq!(ring.in_flight, 40, "{}", ring.settings());
            assert_eq!(finish(&mut ring), (0..40).map(|number| (number, 5)).collect::<Vec<_>>());
            ring.start(Request::Sync { file: Rc::clone(&file), data_only: false }, 1);
            ring.start(Request::Sync { file: Rc::clone(&file), data_only: true }, 2);
            assert_eq!(finish(&mut ring), [(1, 0), (2, 0)]);
            let into = Memory::Caller(BytesMut::zeroed(10));
            ring.start(Request::Read { file: Rc::clone(&file), at: 3, into, most: 7 }, 0);
            let mut ended = Vec::new();
            while ended.is_empty() {
                ring.enter(Enter::OneFor(Duration::from_secs(60))).unwrap();
                ring.completed(&mut ended);
            }
            let (Request::Read { into: Memory::Caller(bytes), .. }, 0, 7) = ended.remove(0) else {
                panic!("another request came back")
            };
            assert_eq!(bytes, &b"deabcde\0\0\0"[..]);
        }
    }
}

#[test]
fn a_request_never_reads_more_than_its_memory_holds() {
    for mut ring in rings(4) {
        let file = file();
        ring.start(write(&file, 0, &[1; 5_000], b""), 0);
        finish(&mut ring);
        let into = Memory::Caller(BytesMut::zeroed(100));
        ring.start(Request::Read { file: Rc::clone(&file), at: 0, into, most: 5_000 }, 0);
        assert_eq!(finish(&mut ring), [(0, 100)]);
    }
}

#[test]
fn of_a_part_too_large_for_one_request_nothing_behind_it_is_written() {
    static FIRST: [u8; MAX_PART + 100] = [1; MAX_PART + 100];
    for mut ring in rings(4) {
        let file = file();
        ring.start(write(&file, 0, &FIRST, b"behind"), 0);
        assert_eq!(finish(&mut ring), [(0, i32::try_from(MAX_PART).unwrap())], "a short count");
        ring.start(write(&file, 0, &FIRST[..MAX_PART], b"behind"), 0);
        assert_eq!(finish(&mut ring), [(0, i32::try_from(MAX_PART + 6).unwrap())]);
    }
}

#[test]
fn a_file_stays_open_while_it_has_requests_in_flight() {
    for mut ring in rings(4) {
        let file = file();
        let copy = file.file.try_clone().unwrap();
        // The ring has the only handle, and the kernel has not even been asked.
        ring.start(write(&file, 0, b"late", b""), 0);
        drop(file);
        assert_eq!(finish(&mut ring), [(0, 4)]);
        assert_eq!(copy.metadata().unwrap().len(), 4);
    }
}

#[test]
fn slots_are_used_again_and_their_numbers_are_not() {
    for mut ring in rings(4) {
        let file = file();
        for round in 0..100 {
            ring.start(write(&file, 0, b"x", b""), round);
            assert_eq!(finish(&mut ring), [(round, 1)]);
        }
        assert_eq!(ring.slots.len(), 1);
        assert_eq!(ring.slots[0].uses, 100);
        assert_ne!(Ring::<usize>::user_data(0, 1), Ring::<usize>::user_data(0, 2));
    }
}

#[test]
fn files_of_the_table_are_used_by_number() {
    for mut ring in rings(4) {
        if !ring.make_file_table(2) {
            continue;
        }
        let plain = tempfile::tempfile().unwrap();
        let add = |ring: &mut Ring<usize>, file: &File| ring.add_file(file.as_raw_fd());
        let (first, second) = (add(&mut ring, &plain), add(&mut ring, &plain));
        assert!(first.is_some() && second.is_some() && first != second);
        assert_eq!(add(&mut ring, &plain), None, "there is no room");
        let copy = plain.try_clone().unwrap();
        let file = Rc::new(Descriptor { file: plain, fixed: first });
        ring.start(write(&file, 0, b"by ", b"number"), 0);
        assert_eq!(finish(&mut ring), [(0, 9)]);
        assert_eq!(copy.metadata().unwrap().len(), 9);
        ring.remove_file(first.unwrap());
        assert_eq!(add(&mut ring, &copy), first, "the number is free again");
    }
}

#[test]
fn a_wait_with_a_limit_ends() {
    for mut ring in rings(4) {
        let (read, _write) = std::io::pipe().unwrap();
        ring.start(Request::Poll { fd: Rc::new(OwnedFd::from(read)) }, 0);
        ring.enter(Enter::OneFor(Duration::from_millis(5))).unwrap();
        let mut ended = Vec::new();
        ring.completed(&mut ended);
        assert!(ended.is_empty() && ring.in_flight == 1);
        // A poll keeps no memory: a drop does not wait for it.
    }
}

#[test]
fn a_drop_waits_for_reads_of_what_is_slow() {
    for mut ring in rings(4) {
        let (read, mut write) = std::io::pipe().unwrap();
        let pool = BufferPool::new(0);
        let file = Rc::new(Descriptor { file: File::from(OwnedFd::from(read)), fixed: None });
        for number in 0..3 {
            let into = Memory::Pool(pool.take(4_096));
            ring.start(Request::Read { file: Rc::clone(&file), at: u64::MAX, into, most: 10 }, number);
        }
        ring.enter(Enter::Now).unwrap();
        let written = Arc::new(AtomicBool::new(false));
        let about_to = Arc::clone(&written);
        let writer = std::thread::Builder::new().spawn(move || {
            // The drop is long at it by then.
            for _ in 0..50 {
                pause();
            }
            about_to.store(true, Ordering::Release);
            for _ in 0..3 {
                std::io::Write::write_all(&mut write, b"0123456789").unwrap();
            }
            write
        });
        drop(ring);
        assert!(
            written.load(Ordering::Acquire),
            "the buffers were given up before the kernel had filled them"
        );
        assert_eq!(pool.counters().live, 0);
        assert_eq!(pool.counters().freed, 3);
        drop(writer.unwrap().join().unwrap());
    }
}
