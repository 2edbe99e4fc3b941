#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_recovery::fuzzing::check_checkpoint(data));
