//! What the demo prints: numbered steps, then a table of what was claimed and what was seen.

use std::fmt::Arguments;
use std::io::Write;

use super::failed;
use crate::cli::Failure;

/// One sentence that the demo makes true or fails.
#[derive(Debug)]
struct Claim {
    text: &'static str,
    seen: String,
    holds: bool,
}

/// The story so far.
pub(super) struct Story<'a> {
    out: &'a mut dyn Write,
    colour: bool,
    step: usize,
    claims: Vec<Claim>,
}

impl<'a> Story<'a> {
    /// A story told to `out`; in plain text unless `colour`.
    pub(super) fn new(out: &'a mut dyn Write, colour: bool) -> Self {
        Self { out, colour, step: 0, claims: Vec::new() }
    }

    fn print(&mut self, line: Arguments<'_>) -> Result<(), Failure> {
        let printed = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        printed.map_err(failed("cannot write to standard output"))
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The title, in front of the first step.
    pub(super) fn title(&mut self, text: &str) -> Result<(), Failure> {
        let text = self.styled("1", text);
        self.print(format_args!("{text}"))
    }

    /// Begins the next step.
    pub(super) fn step(&mut self, text: &str) -> Result<(), Failure> {
        self.step += 1;
        let text = self.styled("1", &format!("{}. {text}", self.step));
        self.print(format_args!("\n{text}"))
    }

    /// A line of the current step.
    pub(super) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.print(format_args!("   {text}"))
    }

    /// A command that the demo runs, as a reader would type it.
    pub(super) fn command(&mut self, text: &str) -> Result<(), Failure> {
        let text = self.styled("36", &format!("$ {text}"));
        self.line(&text)
    }

    /// Says whether `text` holds, and what was seen.
    pub(super) fn claim(
        &mut self,
        text: &'static str,
        holds: bool,
        seen: impl Into<String>,
    ) -> Result<(), Failure> {
        let seen = seen.into();
        let word = if holds { self.styled("32", "true ") } else { self.styled("31", "FALSE") };
        self.line(&format!("{word} {text}: {seen}"))?;
        self.claims.push(Claim { text, seen, holds });
        Ok(())
    }

    /// Prints the table and says whether every claim held. A story without claims proves nothing, and fails.
    pub(super) fn end(mut self) -> Result<bool, Failure> {
        let mut every = !self.claims.is_empty();
        const HEAD: &str = "claim";
        let width = self.claims.iter().map(|claim| claim.text.chars().count()).fold(HEAD.len(), usize::max);
        let head = self.styled("1", &format!("{HEAD:<width$}  {:<5}  {}", "holds", "seen"));
        self.print(format_args!("\n{head}"))?;
        for claim in std::mem::take(&mut self.claims) {
            every &= claim.holds;
            let word = if claim.holds { self.styled("32", "yes  ") } else { self.styled("31", "NO   ") };
            self.print(format_args!("{:<width$}  {word}  {}", claim.text, claim.seen))?;
        }
        Ok(every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(claims: &[(&'static str, bool)], colour: bool) -> (bool, String) {
        let mut out = Vec::new();
        let mut story = Story::new(&mut out, colour);
        story.step("one").unwrap();
        for (text, holds) in claims {
            story.claim(text, *holds, "seen").unwrap();
        }
        (story.end().unwrap(), String::from_utf8(out).unwrap())
    }

    #[test]
    fn one_false_claim_makes_the_story_false() {
        assert!(told(&[("a", true), ("b", true)], false).0);
        let (holds, text) = told(&[("a", true), ("b", false)], false);
        assert!(!holds);
        assert!(text.contains("FALSE b: seen") && text.contains("b      NO     seen"), "{text}");
    }

    #[test]
    fn a_story_that_claims_nothing_proves_nothing() {
        assert!(!told(&[], false).0);
    }

    #[test]
    fn plain_text_has_no_escape_in_it() {
        assert!(!told(&[("a", true), ("b", false)], false).1.contains('\x1b'));
        assert!(told(&[("a", true)], true).1.contains('\x1b'));
    }
}
