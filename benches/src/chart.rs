//! Horizontal bars as SVG, written by hand: a bar is a median, a dot one run.

use std::fmt::Write as _;

use crate::figures::short;
use crate::start_idle::median;

/// Colours that differ in brightness too, for readers who do not see all hues.
const COLOURS: [&str; 6] = ["#1b6ca8", "#e08e0b", "#7a7a7a", "#2e8b57", "#b03a5b", "#6a4fa3"];
const WIDTH: f64 = 960.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 80.0;
const BAR: f64 = 17.0;
const GAP: f64 = 14.0;

/// One bar: the series it belongs to, and the values of all runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Name of the series, for the legend.
    pub series: String,
    /// One value for each run.
    pub values: Vec<f64>,
}

/// Bars that stand together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// What they have in common, left of the axis.
    pub label: String,
    /// The bars, from above.
    pub bars: Vec<Bar>,
}

/// The whole drawing.
///
/// Inputs: `axis` names the quantity and its unit; `note` goes below it.
#[must_use]
pub fn bars(title: &str, axis: &str, note: &str, groups: &[Group]) -> String {
    let mut series: Vec<&str> = Vec::new();
    for bar in groups.iter().flat_map(|group| &group.bars) {
        if !series.contains(&bar.series.as_str()) {
            series.push(&bar.series);
        }
    }
    let largest = groups
        .iter()
        .flat_map(|group| group.bars.iter().flat_map(|bar| &bar.values))
        .fold(0.0_f64, |largest, value| largest.max(*value));
    let (step, end) = scale(largest);
    let plot = WIDTH - LEFT - RIGHT;
    let x = |value: f64| LEFT + plot * value / end;
    let top = 62.0 + 20.0 * series.len().div_ceil(3) as f64;
    let bar_count: usize = groups.iter().map(|group| group.bars.len()).sum();
    let bottom = top + bar_count as f64 * BAR + groups.len() as f64 * GAP;
    let height = bottom + 66.0;

    let mut svg = String::new();
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">"
    ));
    line(format!("<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>"));
    line(format!("<text x=\"20\" y=\"28\" font-size=\"17\" font-weight=\"bold\">{}</text>", escape(title)));
    for (index, name) in series.iter().enumerate() {
        let (column, row) = ((index % 3) as f64, (index / 3) as f64);
        let (left, above) = (20.0 + column * 310.0, 44.0 + row * 20.0);
        line(format!(
            "<rect x=\"{left}\" y=\"{above}\" width=\"13\" height=\"13\" fill=\"{}\"/>",
            COLOURS[index % COLOURS.len()]
        ));
        line(format!("<text x=\"{}\" y=\"{}\">{}</text>", left + 19.0, above + 11.5, escape(name)));
    }
    let mut tick = 0.0;
    while tick <= end + step / 2.0 {
        line(format!(
            "<line x1=\"{0:.1}\" y1=\"{top}\" x2=\"{0:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>",
            x(tick)
        ));
        line(format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444444\">{}</text>",
            x(tick),
            bottom + 17.0,
            number(tick)
        ));
        tick += step;
    }
    let mut y = top + GAP / 2.0;
    for group in groups {
        let middle = y + group.bars.len() as f64 * BAR / 2.0 + 4.5;
        line(format!(
            "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            escape(&group.label)
        ));
        for bar in &group.bars {
            let index = series.iter().position(|name| *name == bar.series).unwrap_or(0);
            let colour = COLOURS[index % COLOURS.len()];
            if bar.values.is_empty() {
                y += BAR;
                continue;
            }
            let value = median(bar.values.clone());
            line(format!(
                "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\" opacity=\"0.8\"/>",
                y + 1.5,
                x(value) - LEFT,
                BAR - 3.0
            ));
            for run in &bar.values {
                line(format!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.4\" fill=\"black\" opacity=\"0.65\"/>",
                    x(*run),
                    y + BAR / 2.0
                ));
            }
            let far = bar.values.iter().fold(value, |far, run| far.max(*run));
            line(format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\">{}</text>",
                x(far) + 7.0,
                y + BAR - 4.5,
                short(value)
            ));
            y += BAR;
        }
        y += GAP;
    }
    line(format!("<line x1=\"{LEFT}\" y1=\"{top}\" x2=\"{LEFT}\" y2=\"{bottom}\" stroke=\"black\"/>"));
    line(format!(
        "<line x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{0}\" y2=\"{bottom}\" stroke=\"black\"/>",
        LEFT + plot
    ));
    line(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{} (bar: median, dot: one run)</text>",
        LEFT + plot / 2.0,
        bottom + 37.0,
        escape(axis)
    ));
    line(format!(
        "<text x=\"20\" y=\"{}\" font-size=\"11\" fill=\"#444444\">{}</text>",
        bottom + 57.0,
        escape(note)
    ));
    svg.push_str("</svg>\n");
    svg
}

/// A round step and the end of the axis, for at most eight steps.
fn scale(largest: f64) -> (f64, f64) {
    let largest = if largest > 0.0 { largest * 1.02 } else { 1.0 };
    let power = 10_f64.powf(largest.log10().floor());
    let step = [0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5]
        .iter()
        .map(|factor| factor * power)
        .find(|step| largest / step <= 8.0)
        .unwrap_or(power * 5.0);
    (step, (largest / step).ceil() * step)
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            other => {
                // Writing to a string does not fail.
                let _ = write!(escaped, "{other}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_axis_legend_bars_and_dots() {
        let bar = |series: &str, values: &[f64]| Bar { series: series.to_owned(), values: values.to_vec() };
        let groups = [
            Group {
                label: "1 MiB".to_owned(),
                bars: vec![bar("uring", &[10.0, 30.0, 20.0]), bar("a < b", &[5.0])],
            },
            Group { label: "4 MiB".to_owned(), bars: vec![bar("uring", &[40.0])] },
        ];
        let svg = bars("Title", "MB/s", "a note", &groups);
        assert_eq!(svg.matches("<circle").count(), 5);
        // Background, two legend boxes, three bars.
        assert_eq!(svg.matches("<rect").count(), 6);
        for text in ["Title", "MB/s (bar", "a note", "uring", "a &lt; b", "1 MiB", "4 MiB", ">20.0<", ">50<"]
        {
            assert!(svg.contains(text), "no {text}: {svg}");
        }
        let width = |value: f64| format!("width=\"{:.1}\"", (WIDTH - LEFT - RIGHT) * value / 50.0);
        assert!(svg.contains(&width(20.0)) && svg.contains(&width(40.0)), "{svg}");
    }

    #[test]
    fn steps_are_round_and_few() {
        for (largest, expected) in
            [(2471.0, (500.0, 3000.0)), (0.83, (0.2, 1.0)), (9.0, (2.0, 10.0)), (0.0, (0.2, 1.0))]
        {
            let (step, end) = scale(largest);
            assert!(
                (step - expected.0).abs() < 1e-9 && (end - expected.1).abs() < 1e-9,
                "{largest}: {step} {end}"
            );
        }
    }
}
