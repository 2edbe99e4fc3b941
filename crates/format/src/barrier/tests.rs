use super::*;

#[test]
fn a_value_that_both_forms_explain_is_the_current_one() {
    // One tagged field 0 of three bytes; or an empty string, no tagged field, and bytes behind them.
    let value = [0, 0, 1, 0, 3, b'a', b'b', b'c'];
    assert_eq!(
        MirrorPidResetValue::decode(&value),
        MirrorPidResetValue::Current { version: 0, tagged_fields: 1 }
    );
}

#[test]
fn a_value_in_no_known_form_has_a_size() {
    let table: [&[u8]; 9] = [
        &[],
        &[0],
        &[0, 0],
        &[0, 0, 0, 0],
        &[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0, 0, 3, 0xc3, 0x28, 0],
        &[0, 0, 3, b'a'],
        &[0, 0, 2, b'a'],
    ];
    for value in table {
        let decoded = MirrorPidResetValue::decode(value);
        assert_eq!(decoded, MirrorPidResetValue::Unrecognised { size: value.len() }, "{value:?}");
    }
}

#[test]
fn a_count_of_four_thousand_million_tagged_fields_ends_with_the_bytes() {
    let value = [0, 7, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 0, 2, 0];
    assert_eq!(MirrorPidResetValue::decode(&value), MirrorPidResetValue::Unrecognised { size: value.len() });
}
