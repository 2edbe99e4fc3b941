#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_format::fuzzing::check_control_key(data));
