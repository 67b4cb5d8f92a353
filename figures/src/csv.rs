//! The numbers behind a figure, one point a line.

use std::fmt::Write;

use crate::chart::{Chart, Kind};

/// Lines of chart, series, x, y and from where to where y may lie where that is known, under a
/// heading; x is a category's name in charts of bars.
pub(crate) fn table(charts: &[Chart]) -> String {
    let mut text = String::from("chart,series,x,y,from,to\n");
    for chart in charts {
        for series in &chart.series {
            for (at, &(x, y)) in series.points.iter().enumerate() {
                let x = match &chart.kind {
                    Kind::Lines => x.to_string(),
                    Kind::Bars(names) => names.get(x as usize).cloned().unwrap_or_default(),
                };
                let spread = match series.spread.get(at) {
                    Some((low, high)) => format!("{low},{high}"),
                    None => ",".to_owned(),
                };
                let (chart, series, x) = (quoted(&chart.title), quoted(&series.name), quoted(&x));
                writeln!(text, "{chart},{series},{x},{y},{spread}").expect("a string takes all");
            }
        }
    }
    text
}

/// The field, in quotes where a comma, a quote or a line's end would break the line.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Series};

    #[test]
    fn a_spreadsheet_reads_names_with_commas() {
        let bars = Chart::bars("(a) speed, one core", vec!["CM".into()], Axis::linear("Mpps"))
            .with(Series::new("insert", vec![(0.0, 27.1)]))
            .with(Series::new("query", vec![(0.0, 30.0)]).with_errors(vec![0.5]));
        let lines = [
            "chart,series,x,y,from,to",
            "\"(a) speed, one core\",insert,CM,27.1,,",
            "\"(a) speed, one core\",query,CM,30,29.5,30.5\n",
        ];
        assert_eq!(table(&[bars]), lines.join("\n"));
    }
}
