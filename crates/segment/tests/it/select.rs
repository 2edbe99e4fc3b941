//! Which backend is chosen, and what it does without, under real seccomp filters and limits. A filter holds for the
//! thread that installs it, so each test has one of its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use weir_segment::io::select::{Backend, IoConfig, SelectError, Selected, WantedBackend, select};
use weir_segment::io::uring::{UringConfig, UringIo};
use weir_segment::io::{Io, Op, Open, SyncKind, Ticket, Wait, exact};

use crate::uring::{dir, ring, skip};

/// Makes system calls of this thread fail.
pub(crate) struct Filter {
    errno: i32,
    rules: BTreeMap<i64, Vec<SeccompRule>>,
}

impl Filter {
    /// One that answers with this error.
    pub(crate) fn answer(errno: i32) -> Filter {
        Filter { errno, rules: BTreeMap::new() }
    }

    /// To this system call.
    pub(crate) fn to(mut self, call: i64) -> Filter {
        self.rules.insert(call, Vec::new());
        self
    }

    /// To this system call if one of these bits is set in this argument.
    fn if_set(mut self, call: i64, argument: u8, bits: u64) -> Filter {
        let set = SeccompCmpOp::MaskedEq(bits);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, set, bits).unwrap();
        let rule = SeccompRule::new(vec![condition]).unwrap();
        self.rules.entry(call).or_default().push(rule);
        self
    }

    /// From now on, for this thread and those that it starts.
    pub(crate) fn install(self) {
        let answer = SeccompAction::Errno(u32::try_from(self.errno).unwrap());
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(self.rules, SeccompAction::Allow, answer, arch).unwrap();
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
    }
}

/// Runs something in a thread of its own.
pub(crate) fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().spawn(work).unwrap();
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// What is chosen in a thread with this filter; the backend is used once.
fn chosen(want: WantedBackend, filter: Option<Filter>) -> Result<Selected, SelectError> {
    in_thread(move || {
        if let Some(filter) = filter {
            filter.install();
        }
        let (mut io, selected) = select(want, &IoConfig::default())?;
        let dir = dir();
        let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
        exact::write_all(&mut *io, file, 0, Bytes::from_static(b"works")).unwrap();
        exact::sync(&mut *io, file, SyncKind::Data).unwrap();
        assert_eq!(exact::read_up_to(&mut *io, file, 0, 10).unwrap(), "works");
        io.close(file).unwrap();
        Ok(selected)
    })
}

fn refuses(errno: i32) -> Option<Filter> {
    Some(Filter::answer(errno).to(libc::SYS_io_uring_setup))
}

#[test]
fn auto_takes_the_ring_where_it_works() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    let selected = chosen(WantedBackend::Auto, None).unwrap();
    assert_eq!(selected.backend, Backend::Uring);
    assert!(selected.reason.starts_with("it works here: "), "{selected}");
    assert!(selected.kernel.starts_with("Linux "), "{selected}");
    let selected = chosen(WantedBackend::Uring, None).unwrap();
    assert!(selected.reason.starts_with("asked for by weir.io: "), "{selected}");
}

#[test]
fn pwrite_never_touches_the_ring() {
    in_thread(|| {
        // A call of any of these ends the process.
        let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
        let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, arch).unwrap();
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        let (_, selected) = select(WantedBackend::Pwrite, &IoConfig::default()).unwrap();
        assert_eq!(selected.backend, Backend::Pwrite);
    });
}

#[test]
fn auto_falls_back_where_a_seccomp_profile_answers_eperm() {
    let selected = chosen(WantedBackend::Auto, refuses(libc::EPERM)).unwrap();
    assert_eq!(selected.backend, Backend::Pwrite);
    assert!(selected.reason.contains("not permitted"), "{selected}");
}

#[test]
fn auto_falls_back_where_a_seccomp_profile_answers_enosys() {
    let selected = chosen(WantedBackend::Auto, refuses(libc::ENOSYS)).unwrap();
    assert_eq!(selected.backend, Backend::Pwrite);
    assert!(selected.reason.contains("no io_uring"), "{selected}");
}

#[test]
fn auto_falls_back_where_no_setting_is_taken_and_where_memory_is_short() {
    for errno in [libc::EINVAL, libc::ENOMEM] {
        let selected = chosen(WantedBackend::Auto, refuses(errno)).unwrap();
        assert_eq!(selected.backend, Backend::Pwrite, "{selected}");
    }
}

#[test]
fn auto_falls_back_where_a_ring_can_be_made_and_not_used() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    for call in [libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        let selected = chosen(WantedBackend::Auto, Some(Filter::answer(libc::EPERM).to(call))).unwrap();
        assert_eq!(selected.backend, Backend::Pwrite, "{selected}");
    }
}

#[test]
fn what_nobody_knows_is_an_error_also_for_auto() {
    let error = chosen(WantedBackend::Auto, refuses(libc::EMFILE)).unwrap_err();
    assert!(matches!(error, SelectError::Broken { .. }), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn who_asks_for_the_ring_gets_it_or_the_cause_and_the_remedy() {
    let text = chosen(WantedBackend::Uring, refuses(libc::EPERM)).unwrap_err().to_string();
    assert!(text.starts_with("weir.io is uring, but io_uring is not permitted"), "{text}");
    assert!(text.contains("io_uring_setup") && text.ends_with("set weir.io to auto or pwrite"), "{text}");
    let text = chosen(WantedBackend::Uring, refuses(libc::ENOSYS)).unwrap_err().to_string();
    assert!(text.contains("ENOSYS"), "{text}");
}

#[test]
fn a_kernel_that_refuses_the_newer_settings_gets_plainer_ones() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    // The settings are behind a pointer, where a filter cannot look; what the kernel took is checked instead.
    let io = ring(UringConfig::default()).unwrap();
    assert!(!io.settings().is_empty());
    let tiny = ring(UringConfig { ring_entries: 1, queue_depth: 1, ..UringConfig::default() }).unwrap();
    assert_eq!(tiny.settings(), io.settings());
}

/// Writes a log with tails and in parallel, and checks it.
fn exercise(io: &mut UringIo) {
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let mut end = 0;
    for size in [10, 5_000, 100_000, 4_096, 1 << 20] {
        exact::write_all(io, file, end, Bytes::from(vec![7; size])).unwrap();
        end += u64::try_from(size).unwrap();
    }
    let from = end.next_multiple_of(4_096);
    for number in 0..16 {
        let write = Op::Write { file, at: from + number * 65_536, bytes: Bytes::from(vec![7; 65_536]) };
        assert!(io.submit(Ticket::new(number), write).is_ok());
    }
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    let results: Vec<_> = done.iter().map(|done| &done.result).collect();
    assert!(results.iter().all(|result| matches!(result, Ok(65_536))), "{results:?}");
    exact::sync(io, file, SyncKind::Data).unwrap();
    let end = from + 16 * 65_536;
    assert_eq!(io.len(file).unwrap(), end);
    assert_eq!(exact::read_up_to(io, file, end - 10, 100).unwrap(), vec![7; 10]);
    io.close(file).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), end);
}

#[test]
fn a_file_system_that_refuses_o_direct_is_written_through_the_page_cache() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    in_thread(|| {
        let direct = u64::try_from(libc::O_DIRECT).unwrap();
        Filter::answer(libc::EINVAL).if_set(libc::SYS_openat, 2, direct).install();
        let mut io = ring(UringConfig::default()).unwrap();
        exercise(&mut io);
        exercise(&mut io);
        let said: Vec<_> = io.remarks().iter().filter(|said| said.contains("page cache")).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("O_DIRECT"), "{said:?}");
        let dir = dir();
        let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
        assert_eq!(io.write_alignment(file), 1);
        assert_eq!(io.preallocated_size(), 0);
    });
}

#[test]
fn a_kernel_that_does_not_say_the_alignment_is_probed() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    in_thread(|| {
        Filter::answer(libc::ENOSYS).to(libc::SYS_statx).install();
        let mut io = ring(UringConfig::default()).unwrap();
        let dir = dir();
        let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
        assert!([1, 4_096].contains(&io.write_alignment(file)));
        exercise(&mut io);
    });
}

#[test]
fn a_file_system_without_fallocate_is_said_once_and_works() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    in_thread(|| {
        Filter::answer(libc::EOPNOTSUPP).to(libc::SYS_fallocate).install();
        let mut io = ring(UringConfig::default()).unwrap();
        exercise(&mut io);
        exercise(&mut io);
        let said: Vec<_> = io.remarks().iter().filter(|said| said.contains("fallocate")).collect();
        assert_eq!(said.len(), usize::from(io.remarks().len() == 1), "{:?}", io.remarks());
    });
}

#[test]
fn a_full_disk_fails_the_write_that_needs_space_and_no_other() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    in_thread(|| {
        let mut io = ring(UringConfig::default()).unwrap();
        let dir = dir();
        let path = dir.path().join("log");
        let file = io.open(&path, Open::AppendNew).unwrap();
        if io.write_alignment(file) == 1 {
            return skip("a full disk: this file system has no direct I/O");
        }
        exact::write_all(&mut io, file, 0, Bytes::from(vec![1; 10_000])).unwrap();
        Filter::answer(libc::ENOSPC).to(libc::SYS_fallocate).install();
        // There is space allocated ahead.
        exact::write_all(&mut io, file, 10_000, Bytes::from(vec![2; 50_000])).unwrap();
        let error = exact::write_all(&mut io, file, 60_000, Bytes::from(vec![3; 10_000])).unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!(exact::read_exact(&mut io, file, 59_999, 1).unwrap(), [2][..]);
        assert_eq!(io.len(file).unwrap(), 60_000);
    });
}

#[test]
fn a_full_file_system_is_used_to_its_last_block() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    let dir = dir();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(dir.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return skip("a size-limited tmpfs: it cannot be mounted here");
    }
    struct Unmount<'a>(&'a std::path::Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0).status();
        }
    }
    let _unmount = Unmount(dir.path());
    let mut io = ring(UringConfig::default()).unwrap();
    let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
    let mut end = 0;
    let error = loop {
        match exact::write_all(&mut io, file, end, Bytes::from(vec![1; 8_192])) {
            Ok(()) => end += 8_192,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    // The steps do not eat what is left: but for the directory's own blocks, all of it was written.
    assert!(end >= (1 << 20) - 16_384, "{end} bytes of a mebibyte");
    let len = io.len(file).unwrap();
    assert!(len >= end);
    assert!(exact::read_up_to(&mut io, file, 0, 2 << 20).unwrap().iter().all(|byte| *byte == 1));
    drop(io);
}

/// The other half of the next test, in a process of its own.
#[test]
#[ignore = "the other half of a test, which runs it"]
fn inside_a_process_that_may_lock_no_memory() {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    sets.permitted.remove(CapabilitySet::IPC_LOCK);
    sets.inheritable.remove(CapabilitySet::IPC_LOCK);
    rustix::thread::set_capabilities(None, sets).unwrap();
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, none).unwrap();
    // Since Linux 5.12 a ring does not count; before, there is none.
    let (_, selected) = select(WantedBackend::Auto, &IoConfig::default()).unwrap();
    match selected.backend {
        Backend::Uring => exercise(&mut UringIo::new(UringConfig::default()).unwrap()),
        Backend::Pwrite => assert!(selected.reason.contains("memory"), "{selected}"),
    }
}

#[test]
fn a_user_who_may_lock_no_memory_is_served() {
    if ring(UringConfig::default()).is_none() {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "select::inside_a_process_that_may_lock_no_memory", "--ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
