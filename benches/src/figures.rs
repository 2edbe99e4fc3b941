//! Rows of figures: every value, its median, ratios of medians.

use std::collections::BTreeMap;

use crate::start_idle::median;

/// The value below which this share of the sorted values lies.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn quantile(values: &mut [u64], share: f64) -> u64 {
    values.sort_unstable();
    let last = values.len().checked_sub(1).expect("a quantile needs a value");
    let wanted = (share * values.len() as f64).ceil().max(1.0);
    // The smallest index with at least `share` of the values at or below it.
    let index = (0..=last).find(|index| (index + 1) as f64 >= wanted).unwrap_or(last);
    values[index]
}

/// All figures of one benchmark: per row and column, one value for each run.
#[derive(Debug, Default)]
pub struct Figures {
    order: Vec<String>,
    rows: BTreeMap<String, BTreeMap<&'static str, Vec<f64>>>,
}

impl Figures {
    /// Adds the value of one run.
    pub fn add(&mut self, row: &str, column: &'static str, value: f64) {
        if !self.rows.contains_key(row) {
            self.order.push(row.to_owned());
        }
        self.rows.entry(row.to_owned()).or_default().entry(column).or_default().push(value);
    }

    /// The values of a row in the order of the runs; empty if there is no such row.
    #[must_use]
    pub fn values(&self, row: &str, column: &str) -> &[f64] {
        self.rows.get(row).and_then(|columns| columns.get(column)).map_or(&[], Vec::as_slice)
    }

    /// The median of a row.
    #[must_use]
    pub fn median(&self, row: &str, column: &str) -> Option<f64> {
        let values = self.values(row, column);
        if values.is_empty() { None } else { Some(median(values.to_vec())) }
    }

    /// The names of the rows, in the order in which they were first added.
    pub fn rows(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(String::as_str)
    }

    /// One line for each row and column: the median and every value.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self.order.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.order {
            for (column, values) in &self.rows[row] {
                let list: Vec<String> = values.iter().map(|value| short(*value)).collect();
                let middle = short(median(values.clone()));
                text.push_str(&format!(
                    "{row:<width$}  {column:<12} median {middle:>8}  of {}\n",
                    list.join(" ")
                ));
            }
        }
        text
    }

    /// `above / below` of two rows' medians.
    #[must_use]
    pub fn ratio(&self, column: &str, above: &str, below: &str) -> Option<f64> {
        Some(self.median(above, column)? / self.median(below, column)?)
    }
}

/// A number with as many digits as say something.
#[must_use]
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(quantile(&mut values, 0.5), 50);
        assert_eq!(quantile(&mut values, 0.99), 99);
        assert_eq!(quantile(&mut values, 1.0), 100);
        assert_eq!(quantile(&mut [7], 0.5), 7);
    }

    #[test]
    fn a_table_has_every_value_and_the_median() {
        let mut figures = Figures::default();
        for value in [3.0, 100.4, 12.25] {
            figures.add("a", "MB/s", value);
        }
        figures.add("b", "MB/s", 6.125);
        assert_eq!(
            figures.table(),
            "a  MB/s         median     12.2  of 3.00 100 12.2\nb  MB/s         median     6.12  of 6.12\n"
        );
        assert_eq!(figures.ratio("MB/s", "a", "b"), Some(2.0));
        assert_eq!(figures.ratio("MB/s", "a", "c"), None);
        assert_eq!(figures.rows().collect::<Vec<_>>(), ["a", "b"]);
    }
}
