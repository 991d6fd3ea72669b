//! The structures of `libuma::sys` against `uma.h`, as the C compiler sees it.

use libuma::sys;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

type Layout = &'static [(&'static str, usize, usize)];

const STRUCTS: &[(&str, usize, Layout)] = &[
    ("uma_query", size_of::<sys::Query>(), sys::Query::LAYOUT),
    ("uma_create", size_of::<sys::Create>(), sys::Create::LAYOUT),
    ("uma_submit", size_of::<sys::Submit>(), sys::Submit::LAYOUT),
    ("uma_wait", size_of::<sys::Wait>(), sys::Wait::LAYOUT),
    ("uma_cancel", size_of::<sys::Cancel>(), sys::Cancel::LAYOUT),
    ("uma_advise", size_of::<sys::Advise>(), sys::Advise::LAYOUT),
    ("uma_prefetch", size_of::<sys::Prefetch>(), sys::Prefetch::LAYOUT),
    ("uma_residency", size_of::<sys::Residency>(), sys::Residency::LAYOUT),
    ("uma_stats", size_of::<sys::Stats>(), sys::Stats::LAYOUT),
    ("uma_device_stats", size_of::<sys::RawDeviceStats>(), sys::RawDeviceStats::LAYOUT),
];

const CONSTANTS: &[(&str, u64)] = &[
    ("UMA_IOC_MAGIC", sys::MAGIC as u64),
    ("UMA_IOC_QUERY", sys::IOC_QUERY as u64),
    ("UMA_IOC_CREATE", sys::IOC_CREATE as u64),
    ("UMA_IOC_SUBMIT", sys::IOC_SUBMIT as u64),
    ("UMA_IOC_WAIT", sys::IOC_WAIT as u64),
    ("UMA_IOC_CANCEL", sys::IOC_CANCEL as u64),
    ("UMA_IOC_ADVISE", sys::IOC_ADVISE as u64),
    ("UMA_IOC_PREFETCH", sys::IOC_PREFETCH as u64),
    ("UMA_IOC_RESIDENCY", sys::IOC_RESIDENCY as u64),
    ("UMA_IOC_STATS", sys::IOC_STATS as u64),
    ("UMA_IOC_DEVICE_STATS", sys::IOC_DEVICE_STATS as u64),
    ("UMA_FEATURE_MIRRORED", sys::FEATURE_MIRRORED),
    ("UMA_FEATURE_PRIVATE", sys::FEATURE_PRIVATE),
    ("UMA_FEATURE_LARGE", sys::FEATURE_LARGE),
    ("UMA_FEATURE_ATOMICS", sys::FEATURE_ATOMICS),
    ("UMA_STATE_OK", sys::STATE_OK as u64),
    ("UMA_STATE_LOST", sys::STATE_LOST as u64),
    ("UMA_MODE_MIRRORED", sys::MODE_MIRRORED as u64),
    ("UMA_MODE_SHARED", sys::MODE_SHARED as u64),
    ("UMA_SUBMIT_FENCE_FD", sys::SUBMIT_FENCE_FD as u64),
    ("UMA_ADVISE_NONE", libuma::Advice::None as u64),
    ("UMA_ADVISE_PREFER_DEVICE", libuma::Advice::PreferDevice as u64),
    ("UMA_ADVISE_PREFER_SYSTEM", libuma::Advice::PreferSystem as u64),
    ("UMA_ADVISE_READ_MOSTLY", libuma::Advice::ReadMostly as u64),
    ("UMA_TARGET_SYSTEM", sys::TARGET_SYSTEM as u64),
    ("UMA_TARGET_DEVICE", sys::TARGET_DEVICE as u64),
    ("UMA_PREFETCH_ASYNC", sys::PREFETCH_ASYNC as u64),
    ("UMA_PAGE_NONE", sys::PAGE_NONE as u64),
    ("UMA_PAGE_SYSTEM", sys::PAGE_SYSTEM as u64),
    ("UMA_PAGE_DEVICE", sys::PAGE_DEVICE as u64),
    ("UMA_PAGE_WHERE_MASK", sys::PAGE_WHERE_MASK as u64),
    ("UMA_PAGE_HUGE", sys::PAGE_HUGE as u64),
    ("UMA_PAGE_MAPPED", sys::PAGE_MAPPED as u64),
];

fn uapi() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/include/uapi")
}

/// Compiles `source` for real, so that every `_Static_assert` in it holds or the compiler's message says which does not.
fn compile(source: &str, arguments: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("check.c");
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"])
        .args(arguments)
        .arg("-I")
        .arg(uapi())
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-o")
        .arg(dir.path().join("check"))
        .arg(&file)
        .output()
        .expect("a C compiler named cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn structures_and_numbers_match_the_c_header() {
    let mut source = String::from("#include <stddef.h>\n#include <linux/uma.h>\n");
    let mut say = |line: String| writeln!(source, "{line}").unwrap();
    for (name, size, layout) in STRUCTS {
        say(format!("_Static_assert(sizeof(struct {name}) == {size}, \"size of {name}\");"));
        say(format!("_Static_assert({size} % 8 == 0, \"{name} is a multiple of 8\");"));
        for (field, offset, size) in *layout {
            say(format!("_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"offset of {name}.{field}\");"));
            say(format!(
                "_Static_assert(sizeof(((struct {name} *)0)->{field}) == {size}, \"size of {name}.{field}\");"
            ));
        }
        let end: usize = layout.iter().map(|(_, _, size)| size).sum();
        say(format!("_Static_assert({end} == sizeof(struct {name}), \"fields of {name} leave no hole\");"));
    }
    for (name, value) in CONSTANTS {
        say(format!("_Static_assert({name} == {value}ULL, \"{name}\");"));
    }
    compile(&source, &["-c"]);
}

#[test]
fn every_constant_of_the_c_header_is_compared() {
    let header = std::fs::read_to_string(uapi().join("linux/uma.h")).unwrap();
    let names = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define UMA_"))
        .filter_map(|rest| rest.split_whitespace().next());
    for name in names {
        assert!(
            CONSTANTS.iter().any(|(known, _)| known.strip_prefix("UMA_") == Some(name)),
            "UMA_{name} is not compared"
        );
    }
}

#[test]
fn c_library_compiles_as_c_and_links_statically() {
    compile("#include <uma/libuma.h>\nint main(void) { return 0; }\n", &["-static"]);
}

#[test]
fn c_examples_compile_statically() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "c") {
            compile(&std::fs::read_to_string(&path).unwrap(), &["-static", "-O2"]);
            seen += 1;
        }
    }
    assert_eq!(seen, 3);
}
