use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};

use super::*;
use crate::config::Overrides;
use crate::metadata::{Change, Topic};

fn config(dir: &Path) -> Config {
    Config::load(&Overrides { data_dir: Some(dir.to_path_buf()), ..Overrides::default() }).unwrap()
}

fn open(dir: &Path) -> Result<DataDirs, DataDirError> {
    let mut io = PwriteIo::new(PwriteConfig::default());
    DataDirs::open(&config(dir), &mut io)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_directory_is_formatted_once_and_keeps_its_identity() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/data");
    let first = open(&dir).unwrap();
    assert!(first.formatted && !first.dirs[0].clean);
    let (cluster_id, id) = (first.metadata.cluster_id().to_owned(), first.dirs[0].id);
    assert_eq!(names(&dir), [".lock", "meta.properties"]);
    assert_eq!(names(&root.path().join("a")), ["data", "data.weir"]);
    drop(first);
    let second = open(&dir).unwrap();
    assert!(!second.formatted);
    assert_eq!((second.metadata.cluster_id(), second.dirs[0].id), (cluster_id.as_str(), id));
    let text = std::fs::read_to_string(dir.join("meta.properties")).unwrap();
    assert!(text.contains(&format!("cluster.id={cluster_id}\n")) && text.contains("version=1\n"), "{text}");
}

#[test]
fn a_second_process_is_refused_before_anything_is_touched() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let held = open(&dir).unwrap();
    std::fs::write(dir.join(".kafka_cleanshutdown"), b"").unwrap();
    let error = open(&dir).unwrap_err();
    assert!(matches!(error, DataDirError::InUse { .. }), "{error}");
    assert!(dir.join(".kafka_cleanshutdown").exists());
    drop(held);
    let reopened = open(&dir).unwrap();
    assert!(reopened.dirs[0].clean);
    assert!(!dir.join(".kafka_cleanshutdown").exists());
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let error = open(&file).unwrap_err();
    assert!(matches!(error, DataDirError::NotADirectory { .. }), "{error}");

    let dir = root.path().join("full");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("thesis.tex"), b"x").unwrap();
    let error = open(&dir).unwrap_err();
    assert!(matches!(&error, DataDirError::NotALogDir { found, .. } if found == "thesis.tex"), "{error}");
    assert!(error.help().contains("full/weir"));
    assert_eq!(names(&dir), ["thesis.tex"]);
    assert_eq!(names(root.path()), ["file", "full"]);
}

#[test]
fn a_directory_without_its_store_or_with_anothers_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (root.path().join("one"), root.path().join("two"));
    drop(open(&one).unwrap());
    drop(open(&two).unwrap());
    let store = root.path().join("one.weir/metadata.redb");
    let aside = root.path().join("aside");
    std::fs::rename(&store, &aside).unwrap();
    let error = open(&one).unwrap_err();
    assert!(matches!(error, DataDirError::StoreMissing { .. }), "{error}");
    std::fs::copy(root.path().join("two.weir/metadata.redb"), &store).unwrap();
    let error = open(&one).unwrap_err();
    assert!(matches!(error, DataDirError::Mismatch { name: "cluster.id", .. }), "{error}");
    std::fs::rename(&aside, &store).unwrap();
    open(&one).unwrap();
}

#[test]
fn another_node_id_than_the_directory_has_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    drop(open(&dir).unwrap());
    let overrides =
        Overrides { data_dir: Some(dir.clone()), set: vec!["node.id=5".to_owned()], ..Overrides::default() };
    let mut io = PwriteIo::new(PwriteConfig::default());
    let error = DataDirs::open(&Config::load(&overrides).unwrap(), &mut io).unwrap_err();
    assert!(matches!(error, DataDirError::Mismatch { name: "node.id", .. }), "{error}");
    // The identity alone, lost or damaged, is never made anew over data.
    std::fs::write(dir.join("meta.properties"), b"version=9\n").unwrap();
    assert!(matches!(open(&dir).unwrap_err(), DataDirError::MetaProperties { .. }));
}

#[tokio::test]
async fn an_unmounted_directory_is_not_formatted_over() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let opened = open(&dir).unwrap();
    let topic = Topic {
        name: "orders".to_owned(),
        id: Uuid([1; 16]),
        partitions: 1,
        configs: std::collections::BTreeMap::new(),
        mirror: None,
    };
    opened.metadata.commit(Change { put_topics: vec![topic], ..Change::default() }).await.unwrap();
    drop(opened);
    std::fs::remove_dir_all(&dir).unwrap();
    let error = open(&dir).unwrap_err();
    assert!(matches!(error, DataDirError::LogDirLost { topics: 1, .. }), "{error}");
    assert!(!dir.join("meta.properties").exists());
}

#[test]
fn an_interrupted_format_is_finished() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let first = open(&dir).unwrap();
    let id = first.dirs[0].id;
    drop(first);
    // The store was made, the directory's identity not yet.
    std::fs::remove_file(dir.join("meta.properties")).unwrap();
    std::fs::write(dir.join("meta.properties.tmp"), b"ver").unwrap();
    assert_eq!(open(&dir).unwrap().dirs[0].id, id);
    // The store itself was half made.
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::remove_file(root.path().join("data.weir/metadata.redb")).unwrap();
    std::fs::write(root.path().join("data.weir/metadata.redb.new"), b"half").unwrap();
    assert_ne!(open(&dir).unwrap().dirs[0].id, id);
}

/// Whoever cannot look at a file is not told that it is lost, nor to put an old one in its place.
#[test]
fn what_the_system_refuses_is_not_called_missing_or_damaged() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    drop(open(&dir).unwrap());
    let refused = |path: &Path, stand_in: &dyn Fn(&Path)| {
        let aside = root.path().join("aside");
        std::fs::rename(path, &aside).unwrap();
        stand_in(path);
        let error = open(&dir).unwrap_err();
        if path.is_dir() {
            std::fs::remove_dir(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
        std::fs::rename(&aside, path).unwrap();
        assert!(error.help().contains("permissions") && !error.help().contains("backup"), "{error:?}");
        error
    };
    let make_dir = |path: &Path| std::fs::create_dir(path).unwrap();
    let error = refused(&dir.join("meta.properties"), &make_dir);
    assert!(matches!(error, DataDirError::Io(_)), "{error:?}");
    let error = refused(&root.path().join("data.weir/metadata.redb"), &make_dir);
    assert!(matches!(error, DataDirError::Metadata(_)), "{error:?}");
    let error = refused(&root.path().join("data.weir"), &|path| std::fs::write(path, b"").unwrap());
    assert!(matches!(error, DataDirError::System { .. }), "{error:?}");
    // What is in it is another matter.
    std::fs::write(root.path().join("data.weir/metadata.redb"), b"no store").unwrap();
    assert!(open(&dir).unwrap_err().help().contains("backup"));
}
