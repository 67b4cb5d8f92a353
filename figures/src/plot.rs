//! Drawing charts side by side into one SVG, with one legend below them.

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::chart::{Axis, Chart, Kind, Scale, Series};

/// Width and height of a chart, and height of a line of the legend, in pixels.
const CHART: (u32, u32) = (480, 330);
const LEGEND: u32 = 24;
/// Charts in a row.
const COLUMNS: usize = 2;
/// Width of a name in the legend.
const NAME: u32 = 220;

/// Told apart on paper and by most who see colours differently.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 40),
    RGBColor(150, 150, 150),
    RGBColor(90, 60, 160),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
    RGBColor(140, 200, 60),
    RGBColor(200, 180, 20),
    RGBColor(20, 60, 90),
];
/// Ours, one after another.
const OUR_COLOURS: [RGBColor; 4] =
    [RGBColor(213, 30, 0), RGBColor(255, 127, 14), RGBColor(150, 0, 60), RGBColor(255, 90, 120)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The colour of every name, in the order of their first appearance.
struct Palette<'a>(Vec<(&'a str, RGBColor, bool)>);

impl<'a> Palette<'a> {
    fn of(charts: &'a [Chart]) -> Self {
        let mut names: Vec<(&str, RGBColor, bool)> = Vec::new();
        for series in charts.iter().flat_map(|chart| &chart.series) {
            if names.iter().all(|known| known.0 != series.name) {
                let alike = names.iter().filter(|known| known.2 == series.ours).count();
                let colours = if series.ours { &OUR_COLOURS[..] } else { &COLOURS[..] };
                names.push((&series.name, colours[alike % colours.len()], series.ours));
            }
        }
        Self(names)
    }

    fn colour(&self, series: &Series) -> RGBColor {
        self.0.iter().find(|known| known.0 == series.name).map_or(BLACK, |known| known.1)
    }
}

/// Draws the charts into an SVG file.
pub(crate) fn write_svg(charts: &[Chart], file: &Path) -> Result<()> {
    draw(charts, file).map_err(|error| anyhow!("drawing {}: {error}", file.display()))
}

fn draw(charts: &[Chart], file: &Path) -> Result<()> {
    let columns = charts.len().clamp(1, COLUMNS);
    let rows = charts.len().div_ceil(columns) as u32;
    let palette = Palette::of(charts);
    let width = CHART.0 * columns as u32;
    let in_line = (width / NAME) as usize;
    let legend = LEGEND * palette.0.len().div_ceil(in_line) as u32;
    let height = CHART.1 * rows + legend + LEGEND / 2;
    let root = SVGBackend::new(file, (width, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(CHART.1 * rows);
    let areas = above.split_evenly((rows as usize, columns));
    for (chart, area) in charts.iter().zip(&areas) {
        draw_chart(chart, area, &palette)?;
    }
    draw_legend(&palette, &below, in_line)?;
    root.present()?;
    Ok(())
}

fn draw_legend(palette: &Palette<'_>, area: &Area<'_>, in_line: usize) -> Result<()> {
    for (at, &(name, colour, ours)) in palette.0.iter().enumerate() {
        let x = (at % in_line) as i32 * NAME as i32 + 20;
        let y = (at / in_line) as i32 * LEGEND as i32 + LEGEND as i32 / 2;
        let stroke = colour.stroke_width(if ours { 4 } else { 2 });
        area.draw(&PathElement::new([(x, y), (x + 24, y)], stroke))?;
        area.draw(&Text::new(name.to_owned(), (x + 30, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}

fn draw_chart(chart: &Chart, area: &Area<'_>, palette: &Palette<'_>) -> Result<()> {
    let points = || chart.series.iter().flat_map(|series| chart.drawable(series));
    let bars = chart.series.iter().flat_map(|series| chart.error_bars(series).flatten());
    let values = points().chain(bars).map(|point| point.1);
    let y = span(&chart.y, values, matches!(chart.kind, Kind::Bars(_)));
    let x = match &chart.kind {
        Kind::Lines => span(&chart.x, points().map(|point| point.0), false),
        Kind::Bars(names) => 0.0..names.len().max(1) as f64,
    };
    match (chart.x.scale, chart.y.scale) {
        (Scale::Linear, Scale::Linear) => draw_on(chart, area, palette, x, y.clone(), y.start),
        (Scale::Log, Scale::Linear) => {
            draw_on(chart, area, palette, x.log_scale(), y.clone(), y.start)
        }
        (Scale::Linear, Scale::Log) => {
            draw_on(chart, area, palette, x, y.clone().log_scale(), y.start)
        }
        (Scale::Log, Scale::Log) => {
            draw_on(chart, area, palette, x.log_scale(), y.clone().log_scale(), y.start)
        }
    }
}

fn draw_on<X, Y>(
    chart: &Chart,
    area: &Area<'_>,
    palette: &Palette<'_>,
    x: X,
    y: Y,
    floor: f64,
) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut canvas = ChartBuilder::on(area)
        .caption(&chart.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let category = |x: &f64| match &chart.kind {
        Kind::Lines => number(x),
        Kind::Bars(names) => names.get(*x as usize).cloned().unwrap_or_default(),
    };
    let bars = matches!(chart.kind, Kind::Bars(_));
    canvas
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(if let Kind::Bars(names) = &chart.kind { names.len() + 1 } else { 6 })
        .y_labels(6)
        .x_label_offset(if bars { 20 } else { 0 })
        .x_label_formatter(&category)
        .y_label_formatter(&number)
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .label_style(("sans-serif", if bars { 11 } else { 13 }))
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    for (at, series) in chart.series.iter().enumerate() {
        let colour = palette.colour(series);
        if bars {
            let width = 0.8 / chart.series.len() as f64;
            let bar = |(x, y): (f64, f64)| {
                let left = x + 0.1 + width * at as f64;
                Rectangle::new([(left, floor), (left + width, y)], colour.filled())
            };
            canvas.draw_series(chart.drawable(series).map(bar))?;
            for [low, high] in chart.error_bars(series) {
                let middle = |(x, y): (f64, f64)| (x + 0.1 + width * (at as f64 + 0.5), y);
                canvas.draw_series(LineSeries::new([middle(low), middle(high)], BLACK))?;
            }
            continue;
        }
        let stroke = colour.stroke_width(if series.ours { 4 } else { 2 });
        let points = thinned(chart.drawable(series).collect());
        canvas.draw_series(LineSeries::new(points.iter().copied(), stroke))?;
        for bar in chart.error_bars(series) {
            canvas.draw_series(LineSeries::new(bar, colour.stroke_width(1)))?;
        }
        let size = if series.ours { 4 } else { 3 };
        let circle = |point| Circle::new(point, size, colour.filled());
        canvas.draw_series(points.into_iter().map(circle))?;
    }
    Ok(())
}

/// Of more points than a chart has columns of pixels, those that can be distinguished in it: of as
/// many that follow one another as fall on a column, the first, the last, the lowest and the
/// highest.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let columns = CHART.0 as usize;
    if points.len() <= 4 * columns {
        return points;
    }
    let of_column = |points: &[(f64, f64)]| {
        let by_height = |at: &usize, other: &usize| points[*at].1.total_cmp(&points[*other].1);
        let all = 0..points.len();
        let extremes = [all.clone().min_by(by_height), all.clone().max_by(by_height)];
        let mut kept: Vec<usize> =
            extremes.into_iter().chain([all.clone().next(), all.last()]).flatten().collect();
        kept.sort_unstable();
        kept.dedup();
        kept.into_iter().map(|at| points[at]).collect::<Vec<_>>()
    };
    points.chunks(points.len().div_ceil(columns)).flat_map(of_column).collect()
}

/// What an axis spans: all values, and for bars zero too, with a little room.
fn span(axis: &Axis, values: impl Iterator<Item = f64>, from_zero: bool) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return 1.0..10.0;
    }
    match axis.scale {
        Scale::Log => low / 1.5..high * 1.5,
        Scale::Linear => {
            let low = if from_zero || (low >= 0.0 && low < 0.5 * high) { 0.0 } else { low };
            let room = if high > low { 0.05 * (high - low) } else { 0.5 };
            (if low == 0.0 { 0.0 } else { low - room })..high + room
        }
    }
}

/// A number as axes show it: short, without a tail of zeros, and with enough digits for
/// neighbouring labels to differ.
fn number(value: &f64) -> String {
    let magnitude = value.abs();
    let scaled = |unit: f64, suffix: &str| format!("{}{suffix}", short(value / unit));
    match magnitude {
        0.0 => "0".to_owned(),
        1e10.. => format!("{value:.1e}").replace(".0e", "e"),
        1e6.. => scaled(1e6, "M"),
        1e4.. => scaled(1e3, "k"),
        1e-3.. => short(*value),
        _ => format!("{value:.1e}").replace(".0e", "e"),
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_labels_are_short() {
        let labels = [0.0, 0.25, 1.0, 600.0, 2e6, 1e-4].map(|value| number(&value));
        assert_eq!(labels, ["0", "0.25", "1", "600", "2M", "1e-4"]);
    }

    #[test]
    fn neighbouring_labels_differ() {
        for step in [1.5e-4, 0.02, 0.5, 20.0, 5e3, 5e4, 2.5e5, 5e6] {
            let labels: Vec<String> = (0..8).map(|at| number(&(step * f64::from(at)))).collect();
            let mut different = labels.clone();
            different.dedup();
            assert_eq!(labels, different);
        }
    }

    #[test]
    fn of_many_points_those_are_drawn_that_stand_out() {
        let few: Vec<_> = (0..1900).map(|at| (f64::from(at), f64::from(at % 7))).collect();
        assert_eq!(thinned(few.clone()), few);
        let mut many: Vec<_> = (0..72_000).map(|at| (f64::from(at), f64::from(at % 7))).collect();
        (many[31_234].1, many[55_555].1) = (100.0, -100.0);
        let drawn = thinned(many.clone());
        assert!(drawn.len() <= 4 * CHART.0 as usize, "{}", drawn.len());
        for at in [0, 31_234, 55_555, 71_999] {
            assert!(drawn.contains(&many[at]), "{at}");
        }
        assert!(drawn.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn points_with_standard_errors_have_lines_up_and_down_that_fit_the_axis() {
        let series = Series::new("s", vec![(1.0, 2.0), (2.0, 0.5)]).with_errors(vec![0.5, 0.75]);
        let chart = Chart::new("c", Axis::linear("x"), Axis::log("y")).with(series);
        let bars: Vec<_> = chart.error_bars(&chart.series[0]).collect();
        assert_eq!(bars, [[(1.0, 1.5), (1.0, 2.5)], [(2.0, 0.5), (2.0, 1.25)]]);
    }

    #[test]
    fn charts_of_every_kind_of_axis_are_drawn_and_a_log_axis_leaves_zero_out() {
        let file = std::env::temp_dir().join(format!("calumma-plot-{}.svg", std::process::id()));
        let mut charts = Vec::new();
        for x in [Axis::linear("x"), Axis::log("x")] {
            for y in [Axis::linear("y"), Axis::log("y")] {
                let points = vec![(0.0, 0.0), (1.0, 1.0), (10.0, 1e-3)];
                charts.push(Chart::new("c", x.clone(), y).with(Series::new("s", points)));
            }
        }
        charts.push(
            Chart::bars("b", vec!["one".into(), "two".into()], Axis::linear("y"))
                .with(Series::ours("bar", vec![(0.0, 3.0), (1.0, 4.0)])),
        );
        write_svg(&charts, &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        // Of three points, a log axis can't show the one at zero.
        assert_eq!(svg.matches("<circle").count(), 3 + 2 + 2 + 2);
        assert!(svg.contains("two"));
    }
}
