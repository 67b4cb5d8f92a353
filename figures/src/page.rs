//! The page: for every figure in a directory the paper's claim, the drawing, what was measured and
//! why it differs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{Section, write};

/// Sections lie here, below the directory of the page, until the page is put together.
const SECTIONS: &str = "sections";

const STYLE: &str = "<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
img { width: 100%; } h2 { margin-top: 3rem; } dt { font-weight: 600; } dd { margin: 0 0 .7rem 0; }
</style>";

/// What a page says about all its figures.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// Its heading.
    pub heading: &'a str,
    /// A paragraph under the heading.
    pub lead: &'a str,
    /// Whose claim is set beside each figure.
    pub claims: &'a str,
}

impl Words<'static> {
    /// Those of papers' figures.
    pub const PAPERS: Self = Self {
        heading: "Figures of the papers, measured",
        lead: "Each figure of a paper that this project was measured for: what the paper says, what was \
               measured on this machine, and why the two differ.",
        claims: "The paper",
    };
}

/// Writes the section of one figure.
pub(crate) fn write_section(
    out: &Path,
    words: &Words<'_>,
    Section { name, title, claim, drawn }: &Section<'_>,
) -> Result<()> {
    let sentences = |list: &[String]| {
        list.iter().map(|sentence| format!("<dd>{}</dd>\n", escaped(sentence))).collect::<String>()
    };
    let picture = match drawn.charts.len() {
        0 => String::new(),
        _ => format!("<p><img src=\"{name}.svg\" alt=\"{}\"></p>\n", escaped(title)),
    };
    let mut section = format!(
        "<section id=\"{name}\"><h2>{}</h2>\n<dl><dt>{}</dt><dd>{}</dd></dl>\n\
         {picture}<dl><dt>Measured</dt>\n{}",
        escaped(title),
        escaped(words.claims),
        escaped(claim),
        sentences(&drawn.measured),
    );
    if !drawn.why.is_empty() {
        section += &format!("<dt>Why it differs</dt>\n{}", sentences(&drawn.why));
    }
    section += "</dl>\n";
    if !drawn.charts.is_empty() {
        section += &format!("<p><a href=\"{name}.csv\">The numbers</a></p>\n");
    }
    section += "</section>\n";
    let directory = out.join(SECTIONS);
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    write(&directory.join(format!("{name}.html")), &section)
}

/// Puts the page together from all sections there are, by name.
pub(crate) fn write_index(out: &Path, words: &Words<'_>) -> Result<()> {
    let directory = out.join(SECTIONS);
    let listing = fs::read_dir(&directory)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("listing {}", directory.display()))?;
    let mut files: Vec<_> = listing.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let heading = escaped(words.heading);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Calumma: {heading}</title>{STYLE}</head><body>\n\
         <h1>{heading}</h1>\n<p>{}</p>\n",
        escaped(words.lead)
    );
    for file in files {
        page +=
            &fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    }
    page += "</body></html>\n";
    write(&out.join("index.html"), &page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
