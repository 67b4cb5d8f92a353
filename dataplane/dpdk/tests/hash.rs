//! DPDK's hash table finds what was put in, and nothing else, many keys at once and one by one; and
//! arrays lie in the EAL's memory.

mod common;

use dpdk::{Eal, HashTable, Words};

#[test]
fn keys_are_found_with_their_numbers_until_there_is_no_room() {
    let eal = common::eal(1, &[]);
    assert!(HashTable::<16>::new(&eal, "refused", 0).is_err());
    let mut table = HashTable::<13>::new(&eal, "flows", 900).unwrap();
    assert!(HashTable::<13>::new(&eal, "flows", 900).is_err(), "a name that there is already");
    let key = |flow: u32| {
        let mut key = [9; 13];
        key[8..12].copy_from_slice(&flow.to_be_bytes());
        key
    };
    for flow in 0..900_u32 {
        table.insert(&key(flow), 3 * flow as usize).unwrap();
    }
    assert!(table.insert(&key(900), 0).is_err(), "no room is left");
    table.insert(&key(7), 5).unwrap();
    assert_eq!(table.len(), 900);

    // Every second key of a burst is there.
    let flow = |at| if at % 2 == 0 { at } else { 2000 + at };
    let keys: Vec<[u8; 13]> = (0..63).map(|at| key(flow(at))).collect();
    let keys: Vec<&[u8; 13]> = keys.iter().collect();
    let mut numbers = [usize::MAX; 63];
    let found = table.lookup_burst(&keys, &mut numbers);
    for (at, key) in keys.iter().enumerate() {
        let expected = (at % 2 == 0).then_some(3 * at);
        assert_eq!((found >> at & 1 == 1).then_some(numbers[at]), expected, "{at}");
        assert_eq!(table.lookup(key), expected);
    }
    assert_eq!(table.lookup(&key(7)), Some(5));
    assert_eq!(table.lookup_burst(&[], &mut numbers), 0);

    table.clear();
    assert!(table.is_empty());
    assert_eq!(table.lookup_burst(&keys, &mut numbers), 0);

    arrays_begin_as_zeros(&eal);
}

fn arrays_begin_as_zeros(eal: &Eal) {
    assert!(Words::new(eal, usize::MAX).is_err() && Words::new(eal, 1 << 40).is_err());
    for _ in 0..2 {
        let mut words = Words::new(eal, 1 << 16).unwrap();
        assert_eq!((words.len(), words.as_ptr() as usize % 64), (1 << 16, 0));
        assert!(words.iter().all(|&word| word == 0));
        words.fill(u64::MAX);
    }
}
