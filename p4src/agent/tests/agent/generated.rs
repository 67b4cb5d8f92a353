//! P4 programs are built with the constants of the contract, and have what the daemon names.

use std::path::Path;

use calumma_bfrt::Info;
use calumma_chamelemon::Layout;
use calumma_hops_tofino::Hops;
use calumma_sketch::Arithmetic;
use calumma_switchd::cfs::Cfs;
use calumma_switchd::chamelemon::{self, ChameleMon, program};
use calumma_switchd::config::CarrierKind;
use calumma_switchd::sketchint::sizes::Sizes;
use calumma_switchd::sketchint::{SketchInt, logarithms};
use calumma_switchd::system::{self, Build, System, Target};
use calumma_switchd::{fits, hashes, marks};
use calumma_tna::Program;
use calumma_wire::Role;

use crate::common::CHIPS;

/// The systems of a release that has these programs.
static SYSTEMS: [&dyn System; 4] = [&ChameleMon, &SketchInt, &Cfs, &Hops::EVERYWHERE];

#[test]
fn the_generated_files_are_up_to_date() {
    let contract = program::contract(&Layout::default()).unwrap();
    for (file, wanted) in [
        ("generated/hashes.p4", hashes::constants()),
        ("chamelemon/generated/contract.p4", contract),
        ("int/generated/sizes.p4", Sizes::of_section(None).unwrap().constants()),
        (logarithms::LOGARITHMS, logarithms::entries()),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include").join(file);
        if std::env::var_os("CALUMMA_BLESS").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert_eq!(found, wanted, "CALUMMA_BLESS=1 cargo test -p calumma-switchd writes it anew");
    }
}

/// What a driver would say of the program in that arithmetic.
fn described(layout: &Layout) -> String {
    described_with(program::defines(layout))
}

/// What a driver would say of the program that is compiled with those macros.
fn described_with(defines: Vec<(String, String)>) -> String {
    described_as("edge.p4", &defines)
}

/// What a driver would say of a program that is compiled so.
fn described_as(file: &str, defines: &[(String, String)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let program = Program::load(path, defines).unwrap();
    String::from_utf8(calumma_tna_driver::description(&program)).unwrap()
}

/// A compiled program is known by its registers, and its system says whether it fits.
#[test]
fn a_described_program_is_recognised_and_fits_its_own_system() {
    let systems: [&dyn System; 3] = [&Hops::EVERYWHERE, &SketchInt, &Cfs];
    let [hops, sketchint, cfs] = systems.map(|system| {
        let built = system.build((system.roles()[0], Target::Tofino), &toml::Table::new()).unwrap();
        described_as(system.program(), &built.defines)
    });
    let wrapping: toml::Table = "[layout]\narithmetic = \"wrapping\"".parse().unwrap();
    let layout = Layout { arithmetic: Arithmetic::Wrapping, ..Layout::default() };
    let chamelemon = described(&layout);
    let all = [(chamelemon, "chamelemon"), (hops, "hops"), (sketchint, "sketchint"), (cfs, "cfs")];
    for (description, name) in all {
        let info = Info::from_json(&[description.as_bytes()]).unwrap();
        let system = system::of_program(&SYSTEMS, &info).unwrap();
        assert_eq!(system.name(), name);
        for &role in system.roles() {
            let on = (role, Target::Built(&info));
            fits::check(&info, &system.build(on, &wrapping).unwrap().needs).unwrap();
        }
        for other in SYSTEMS.iter().filter(|other| other.name() != name) {
            let on = (other.roles()[0], Target::Built(&info));
            let Build { needs, .. } = other.build(on, &wrapping).unwrap();
            assert!(
                fits::check(&info, &needs).is_err(),
                "{name} is no program of {}",
                other.name()
            );
        }
        let unknown = description.replace(system.landmark(), "Ingress.elsewhere");
        let info = Info::from_json(&[unknown.as_bytes()]).unwrap();
        assert!(system::of_program(&SYSTEMS, &info).is_none());
    }
    let wrong: toml::Table = "[layout]\narrays = 4".parse().unwrap();
    let problem = ChameleMon.build((Role::Edge, Target::Tofino), &wrong).unwrap_err();
    assert!(problem.contains("arrays = 4"), "{problem}");
}

/// How many columns a program has is seen from it; one that was changed for another is no longer
/// the one that is driven.
#[test]
fn columns_are_those_of_the_program_that_is_there() {
    let build = |target| Cfs.build((Role::Edge, target), &toml::Table::new());
    let described = CHIPS.map(|chip| described_as("cfs.p4", &build(chip).unwrap().defines));
    let built = described.each_ref().map(|text| Info::from_json(&[text.as_bytes()]).unwrap());
    let needs = built.each_ref().map(|info| build(Target::Built(info)).unwrap().needs);
    let columns = needs.each_ref().map(|needs| needs.parts.unwrap().number);
    assert_eq!(columns, [4, 6]);
    for (info, needs) in built.iter().zip(&needs) {
        fits::check(info, needs).unwrap();
    }
    let wrong = fits::check(&built[1], &needs[0]).unwrap_err().to_string();
    let named = "6 of Ingress.rows.column*.standing.words, and measuring goes by 4";
    assert!(wrong.contains(named), "{wrong}");
    let wrong = fits::check(&built[0], &needs[1]).unwrap_err().to_string();
    assert!(wrong.contains("4 of ") && wrong.contains("by 6: another build"), "{wrong}");
    // Its registers have another size than rows of six places would.
    let larger = "[cfs]\nentries = 32768".parse().unwrap();
    let of_larger = Cfs.build((Role::Edge, Target::Built(&built[1])), &larger).unwrap().needs;
    let wrong = fits::check(&built[1], &of_larger).unwrap_err().to_string();
    assert!(wrong.contains("holds 4096 elements") && wrong.contains("-DROW_BITS"), "{wrong}");
    // Of five, nothing is known.
    let five = described[1].replace("column5.standing", "column9.standing");
    let five = Info::from_json(&[five.as_bytes()]).unwrap();
    let refused = build(Target::Built(&five)).unwrap_err();
    assert!(refused.contains("has 5 columns: build cfs.p4 with 4, or with"), "{refused}");
}

fn problem(description: &str, layout: &Layout) -> Option<String> {
    let info = Info::from_json(&[description.as_bytes()]).unwrap();
    fits::check(&info, &chamelemon::needs(layout)).err().map(|mismatch| mismatch.to_string())
}

#[test]
fn a_program_that_lacks_what_the_daemon_names_does_not_fit() {
    let prime = Layout::default();
    let wrapping = Layout { arithmetic: Arithmetic::Wrapping, ..Layout::default() };
    let described = [&prime, &wrapping].map(described);
    assert_eq!(problem(&described[0], &prime), None);
    assert_eq!(problem(&described[1], &wrapping), None);

    let other = problem(&described[0], &wrapping).unwrap();
    assert!(other.contains("Wrapping arithmetic"), "{other}");
    let larger = Layout { upstream_buckets: 8192, ..Layout::default() };
    let small = problem(&described[0], &larger).unwrap();
    assert!(small.contains("holds 8192 elements") && small.contains("wants 16384"), "{small}");
    for (there, instead) in [
        ("Ingress.packets", "Ingress.counted"),
        ("Ingress.set_timestamp", "Ingress.set_bit"),
        ("w3_high", "w3_upper"),
        ("narrow_level", "narrow"),
        ("to_group", "group_number"),
        ("Ingress.collection.accept", "Ingress.collection.take"),
    ] {
        let renamed = described[0].replace(there, instead);
        let missing = problem(&renamed, &prime).unwrap_or_else(|| panic!("{instead} for {there}"));
        assert!(missing.contains("there is none"), "{missing}");
    }
    let narrower = described[0].replace("\"width\":16", "\"width\":8");
    let narrow = problem(&narrower, &prime).unwrap();
    assert!(narrow.contains("does not fit in 8 bits"), "{narrow}");
}

/// Which carrier a program is for is seen from its tables.
#[test]
fn a_program_for_another_carrier_does_not_fit() {
    let marks = vec![(marks::DEFINE.to_owned(), "1".to_owned())];
    let [tos, ip_id] = [Vec::new(), marks].map(described_with);
    let check = |description: &str, carrier| {
        let info = Info::from_json(&[description.as_bytes()]).unwrap();
        marks::check(&info, carrier).err().map(|mismatch| mismatch.to_string())
    };
    assert_eq!(check(&tos, CarrierKind::Tos), None);
    assert_eq!(check(&ip_id, CarrierKind::IpId), None);
    assert_eq!(problem(&ip_id, &Layout::default()), None);
    let wanted = check(&tos, CarrierKind::IpId).unwrap();
    assert!(wanted.contains("by \"tos\"") && wanted.contains("-D CARRIER_IP_ID=1"), "{wanted}");
    let other = check(&ip_id, CarrierKind::Tos).unwrap();
    assert!(other.contains("build it without CARRIER_IP_ID"), "{other}");
    for (there, instead) in [
        ("of_next", "of_another"),
        ("above", "over"),
        ("signature.byte7", "signature.byte17"),
        ("fabric_mtu", "mtu"),
    ] {
        let renamed = ip_id.replace(there, instead);
        let missing = check(&renamed, CarrierKind::IpId);
        assert!(missing.is_some_and(|missing| missing.contains("there is none")), "{there}");
    }
}
