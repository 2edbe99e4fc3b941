use super::*;

fn signed(value: i32) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(value, &mut out);
    out.to_vec()
}

fn long(value: i64) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_long(value, &mut out);
    out.to_vec()
}

#[test]
fn values_at_the_borders_have_kafkas_bytes() {
    // From Kafka's ByteUtilsTest.
    let table: &[(i32, &[u8])] = &[
        (0, &[0x00]),
        (-1, &[0x01]),
        (1, &[0x02]),
        (63, &[0x7e]),
        (-64, &[0x7f]),
        (64, &[0x80, 0x01]),
        (-65, &[0x81, 0x01]),
        (8191, &[0xfe, 0x7f]),
        (8192, &[0x80, 0x80, 0x01]),
        (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ];
    for &(value, bytes) in table {
        assert_eq!(signed(value), bytes, "{value}");
        assert_eq!(decode(bytes), Ok((value, bytes.len())), "{value}");
    }
    let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(long(i64::MIN), longest);
    assert_eq!(decode_long(&longest), Ok((i64::MIN, 10)));
    assert_eq!(decode_long(&long(i64::MAX)), Ok((i64::MAX, 10)));
}

#[test]
fn a_varint_ends_after_five_bytes_and_a_varlong_after_ten() {
    assert_eq!(decode(&[0x80; 5]), Err(VarintError::TooLong));
    assert_eq!(decode(&[0x80; 4]), Err(VarintError::Truncated));
    assert_eq!(decode(&[]), Err(VarintError::Truncated));
    assert_eq!(decode_long(&[0x80; 10]), Err(VarintError::TooLong));
    assert_eq!(decode_long(&[0x80; 9]), Err(VarintError::Truncated));
    assert_eq!(decode_long(&[0x80; 4096]), Err(VarintError::TooLong));
}

#[test]
fn longer_forms_are_read_and_surplus_bits_are_dropped() {
    assert_eq!(decode(&[0x80, 0x80, 0x80, 0x80, 0x00]), Ok((0, 5)));
    assert_eq!(decode_unsigned(&[0x8e, 0x80, 0x80, 0x80, 0x70]), Ok((14, 5)));
}

proptest::proptest! {
    #[test]
    fn what_is_written_is_read(value: i32, wide: i64, tail: Vec<u8>) {
        let mut bytes = signed(value);
        let size = bytes.len();
        bytes.extend_from_slice(&tail);
        proptest::prop_assert_eq!(decode(&bytes), Ok((value, size)));
        let mut bytes = long(wide);
        let size = bytes.len();
        bytes.extend_from_slice(&tail);
        proptest::prop_assert_eq!(decode_long(&bytes), Ok((wide, size)));
    }
}
