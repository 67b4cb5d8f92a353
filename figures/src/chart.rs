//! What a chart shows, apart from how it is drawn.

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal ratios; values that are not above zero are left out.
    Log,
}

/// An axis: what its numbers are of, and how it is divided.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

impl Axis {
    /// An axis of equal steps; the label names quantity and unit.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// A logarithmic axis; the label names quantity and unit.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    /// Quantity and unit.
    pub fn label(&self) -> &str {
        &self.label
    }
}

/// How the series of a chart are shown.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Points joined by lines.
    Lines,
    /// A bar for each category, which the points' x (0, 1, ...) number; the bars of the series
    /// stand side by side.
    Bars(Vec<String>),
}

/// Values under one name. A name has the same colour in all charts of a figure.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// From where to where each point may lie; empty where that isn't known.
    pub(crate) spread: Vec<(f64, f64)>,
    pub(crate) ours: bool,
}

impl Series {
    /// A series of points (x, y).
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, spread: Vec::new(), ours: false }
    }

    /// With the standard error of each point's y, drawn as a line up and down from it.
    pub fn with_errors(self, errors: Vec<f64>) -> Self {
        let spread = self.points.iter().zip(errors).map(|(&(_, y), e)| (y - e, y + e)).collect();
        Self { spread, ..self }
    }

    /// With the lowest and the highest reading behind each point's y, drawn as a line between them.
    pub fn with_spread(self, spread: Vec<(f64, f64)>) -> Self {
        Self { spread, ..self }
    }

    /// One that belongs to this project: drawn boldly.
    pub fn ours(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { ours: true, ..Self::new(name, points) }
    }
}

/// One drawing with its axes; a figure has one or several.
#[derive(Clone, Debug)]
pub struct Chart {
    pub(crate) title: String,
    pub(crate) kind: Kind,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

impl Chart {
    /// An empty chart of lines.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), kind: Kind::Lines, x, y, series: Vec::new() }
    }

    /// An empty chart of bars, one group for each category.
    pub fn bars(title: impl Into<String>, categories: Vec<String>, y: Axis) -> Self {
        let kind = Kind::Bars(categories);
        Self { title: title.into(), kind, x: Axis::linear(""), y, series: Vec::new() }
    }

    /// Adds a series.
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Lines along the spread of each point that can be drawn on these axes.
    pub(crate) fn error_bars<'a>(
        &'a self,
        series: &'a Series,
    ) -> impl Iterator<Item = [(f64, f64); 2]> + 'a {
        let points = series.points.iter().zip(&series.spread);
        points.filter(|(point, _)| self.fits(point)).map(|(&(x, y), &(low, high))| {
            // On a logarithmic axis a line can't go down to zero.
            let low = if self.fits(&(x, low)) { low } else { y };
            [(x, low), (x, high)]
        })
    }

    fn fits(&self, &(x, y): &(f64, f64)) -> bool {
        let fits = |axis: &Axis, value: f64| {
            value.is_finite() && (axis.scale == Scale::Linear || value > 0.0)
        };
        fits(&self.x, x) && fits(&self.y, y)
    }

    /// The points of a series that can be drawn on these axes.
    pub(crate) fn drawable<'a>(
        &'a self,
        series: &'a Series,
    ) -> impl Iterator<Item = (f64, f64)> + 'a {
        series.points.iter().copied().filter(|point| self.fits(point))
    }
}
