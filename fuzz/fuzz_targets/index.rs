#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_segment::fuzzing::check_index(data));
