//! The page: for every figure in a directory the paper's claim, the drawing, what was measured and
//! why it differs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{Drawn, write};

/// Sections lie here, below the directory of the page, until the page is put together.
const SECTIONS: &str = "sections";

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Calumma: figures</title><style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
img { width: 100%; } h2 { margin-top: 3rem; } dt { font-weight: 600; } dd { margin: 0 0 .7rem 0; }
</style></head><body>
<h1>Figures of the papers, measured</h1>
<p>Each figure of a paper that this project was measured for: what the paper says, what was measured
on this machine, and why the two differ.</p>
";

/// Writes the section of one figure.
pub(crate) fn write_section(
    out: &Path,
    name: &str,
    title: &str,
    claim: &str,
    drawn: &Drawn,
) -> Result<()> {
    let sentences = |list: &[String]| {
        list.iter().map(|sentence| format!("<dd>{}</dd>\n", escaped(sentence))).collect::<String>()
    };
    let mut section = format!(
        "<section id=\"{name}\"><h2>{}</h2>\n<dl><dt>The paper</dt><dd>{}</dd></dl>\n\
         <p><img src=\"{name}.svg\" alt=\"{}\"></p>\n<dl><dt>Measured</dt>\n{}",
        escaped(title),
        escaped(claim),
        escaped(title),
        sentences(&drawn.measured),
    );
    if !drawn.why.is_empty() {
        section += &format!("<dt>Why it differs</dt>\n{}", sentences(&drawn.why));
    }
    section += &format!("</dl>\n<p><a href=\"{name}.csv\">The numbers</a></p></section>\n");
    let directory = out.join(SECTIONS);
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    write(&directory.join(name).with_extension("html"), &section)
}

/// Puts the page together from all sections there are, by name.
pub(crate) fn write_index(out: &Path) -> Result<()> {
    let directory = out.join(SECTIONS);
    let listing = fs::read_dir(&directory)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("listing {}", directory.display()))?;
    let mut files: Vec<_> = listing.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let mut page = HEAD.to_owned();
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
