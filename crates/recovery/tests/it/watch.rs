//! Who waits for a load sees how far it is, ends it, and learns how long it took.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use weir_recovery::cut::{self, CutConfig, CutError};
use weir_recovery::{LoadError, LogLoader, Phase, Progress, Watch, inspect};
use weir_segment::io::sim::SimDisk;

use super::support::*;

/// Remembers what it was told; ends the call at one of them; its clock moves on by a second at every look.
#[derive(Default)]
struct Remembers {
    told: Vec<Progress>,
    end_at: Option<usize>,
    seconds: u64,
}

impl Watch for Remembers {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.told.push(*progress);
        if self.end_at == Some(self.told.len()) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn now(&mut self) -> Option<Duration> {
        self.seconds += 1;
        Some(Duration::from_secs(self.seconds))
    }
}

/// Two segments of 3 and 2 MiB, a torn tail of 2.5 MiB behind them, and a swap that was not put in place.
fn megabytes(disk: &SimDisk) -> u64 {
    let segment = |from: i64, count: i64| {
        (from..from + count).map(|n| placed(plain(1, (1 << 20) - 100), n, 0)).collect()
    };
    write_segments(disk, &[segment(0, 3), segment(3, 2)]);
    let mut last = disk.read_file(&log_path(3)).unwrap();
    last.extend(vec![7; 5 << 19]);
    disk.write_file(&log_path(3), &last);
    disk.write_file(&file(0, "log.deleted"), b"x");
    disk.read_file(&log_path(0)).unwrap().len() as u64 + last.len() as u64
}

#[test]
fn progress_is_told_for_every_mebibyte_up_to_the_end() {
    let disk = SimDisk::new(1);
    let size = megabytes(&disk);
    let mut watch = Remembers::default();
    let (_, report) = LogLoader::load_watched(&mut disk.io(), Path::new(DIR), &config(), &mut watch).unwrap();
    let of = |phase| watch.told.iter().filter(move |told| told.phase == phase).collect::<Vec<_>>();
    let walk = of(Phase::Walk);
    assert!(walk.iter().all(|told| told.bytes_total == size), "{walk:?}");
    assert!(walk.is_sorted_by_key(|told| told.bytes_done));
    let steps = walk.windows(2).map(|pair| pair[1].bytes_done - pair[0].bytes_done);
    assert!(steps.clone().all(|step| step <= 5 << 19), "{:?}", steps.collect::<Vec<_>>());
    assert_eq!(walk.last().unwrap().bytes_done, size);
    let tail = of(Phase::Tail);
    assert_eq!((tail[0].bytes_done, tail[0].bytes_total), (0, 5 << 19));
    assert!(tail.len() > 3, "{tail:?}");
    assert!(!of(Phase::Leftovers).is_empty() && !of(Phase::Rebuild).is_empty());

    // Begun at 1, settled at 2, walked at 3, done at 4.
    let times = report.times.unwrap();
    assert_eq!([times.leftovers, times.walk, times.rebuild], [Duration::from_secs(1); 3]);
    assert_eq!(report.duration, Some(Duration::from_secs(3)));
}

#[test]
fn a_load_ended_at_any_call_leaves_a_directory_that_loads_and_what_was_done_stays_done() {
    let start = SimDisk::new(1);
    megabytes(&start);
    let whole = start.fork();
    let (expected, _) = load(&whole, &config()).unwrap();
    let mut ended = 0;
    for end_at in 1.. {
        let disk = start.fork();
        let mut watch = Remembers { end_at: Some(end_at), ..Remembers::default() };
        match LogLoader::load_watched(&mut disk.io(), Path::new(DIR), &config(), &mut watch) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, LoadError::Interrupted), "{error}"),
        }
        assert_eq!(watch.told.len(), end_at, "it asks no more after it was ended");
        ended += 1;
        let settled = watch.told.iter().any(|told| told.phase == Phase::Walk);
        assert_eq!(disk.read_file(&file(0, "log.deleted")).is_none(), settled, "{end_at}");
        // Nothing is cut before all of it was walked.
        let cut = watch.told.iter().any(|told| told.phase == Phase::Rebuild);
        let (loaded, report) = load(&disk, &config()).unwrap();
        assert_eq!(report.cuts.is_empty(), cut, "{end_at}: what was cut is not cut again");
        assert_eq!(loaded.log.log_end_offset(), expected.log.log_end_offset(), "{end_at}");
        assert_eq!(disk.contents(), whole.contents(), "{end_at}");
    }
    assert!(ended > 12, "{ended}");
}

#[test]
fn a_look_and_a_cut_end_where_the_watch_says_and_change_nothing() {
    let disk = SimDisk::new(1);
    megabytes(&disk);
    let before = disk.contents();
    let config = config();
    let cut_config = CutConfig { side_dir: SIDE_DIR.into(), recovery_point: offset(0) };
    disk.remove_file(&file(0, "log.deleted"));
    for end_at in [1, 3, 5] {
        let watch = || Remembers { end_at: Some(end_at), ..Remembers::default() };
        let looked = inspect(&mut disk.io(), Path::new(DIR), &config, &mut watch());
        assert!(matches!(looked, Err(LoadError::Interrupted)));
        let planned = cut::plan(&mut disk.io(), Path::new(DIR), &cut_config, offset(4), &mut watch());
        assert!(matches!(planned, Err(CutError::Interrupted)));
    }
    let plan =
        cut::plan(&mut disk.io(), Path::new(DIR), &cut_config, offset(4), &mut Remembers::default()).unwrap();
    let mut watch = Remembers { end_at: Some(2), ..Remembers::default() };
    assert!(matches!(cut::apply(&mut disk.io(), &plan, &mut watch), Err(CutError::Interrupted)));
    assert_eq!(watch.told.last().map(|told| told.phase), Some(Phase::Archive));
    for (path, bytes) in before.iter().filter(|(path, _)| **path != file(0, "log.deleted")) {
        assert_eq!(disk.read_file(path).as_ref(), Some(bytes), "{}", path.display());
    }
}
