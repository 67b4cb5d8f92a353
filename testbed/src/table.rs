//! Tables for a terminal: columns as wide as their content, the first to the left, the others to
//! the right.

use std::fmt::Write;

/// Lays out rows under a heading. Every row has as many cells as the heading.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = heading.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut line = |cells: [&str; N]| {
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(heading);
    for row in rows {
        line(row.each_ref().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        let rows =
            [["h1 > e1h".to_owned(), "12345".to_owned()], ["core".to_owned(), String::new()]];
        assert_eq!(table(["hop", "lost"], &rows), "hop        lost\nh1 > e1h  12345\ncore\n");
    }
}
