//! An example of a measurement system: every flow's packets, counted at every switch of their way.
//!
//! The smallest system that uses all of what a system can be: docs/adding-a-system.md walks through
//! it. It is in no product's list, since a table of flows is either too small or too large; tests
//! run it beside the others.
//!
//! [`plane`] is what a switch does, [`frames`] what it sends.

pub mod frames;
pub mod plane;

pub use plane::Hops;

#[cfg(test)]
mod tests {
    /// The example is there to be read: what every system needs belongs to the crates it builds on.
    #[test]
    fn the_example_has_less_than_300_lines_of_code() {
        let files = [
            include_str!("lib.rs"),
            include_str!("frames.rs"),
            include_str!("plane.rs"),
            include_str!("../analysis/src/lib.rs"),
        ];
        let code = files.into_iter().flat_map(|file| {
            file.lines().map(str::trim_start).take_while(|line| *line != "#[cfg(test)]")
        });
        let lines = code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        assert!((200..300).contains(&lines), "{lines}");
    }
}
