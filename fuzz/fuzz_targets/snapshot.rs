#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_psm::fuzzing::check_snapshot(data));
