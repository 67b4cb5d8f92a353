//! The parser in a compiled program's assembly.

/// The first parser state with two ways on for every packet: the second one can't be taken, so the
/// compiler has lost what the program selects by. p4c did so to every program until its pull
/// request 5753, without an error.
pub(super) fn lost_select(assembly: &str) -> Option<&str> {
    let mut in_parser = false;
    let mut state = "";
    let mut always = 0;
    for line in assembly.lines() {
        let text = line.trim_start();
        match line.len() - text.len() {
            0 => in_parser = text.starts_with("parser "),
            4 if text.ends_with(':') => (state, always) = (text.trim_end_matches(':'), 0),
            6 if text == "*:" => always += 1,
            _ => {}
        }
        if in_parser && always > 1 {
            return Some(state);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::lost_select;

    const WHOLE: &str = "\
parser ingress:
  states:
    ethernet:
      match: [ half ]
      0x0800:
        next: ipv4
      *:
        next: end
    ipv4:
      *:
        next: end
deparser ingress:
    order:
      *:
      *:
";

    #[test]
    fn a_parser_that_no_longer_selects_is_noticed() {
        assert_eq!(lost_select(WHOLE), None);
        assert_eq!(lost_select(&WHOLE.replace("0x0800:", "*:")), Some("ethernet"));
    }
}
