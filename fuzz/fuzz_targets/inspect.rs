#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_node::cli::inspect::fuzzing::check_inspect(data));
