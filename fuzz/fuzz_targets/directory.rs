#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_log::fuzzing::check_directory(data));
