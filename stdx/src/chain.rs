//! An error with its causes in one line.

use std::error::Error;

/// Most characters of a line; libraries put whole replies of servers into their errors.
const CHARS_MAX: usize = 600;

/// What an error says, then each cause that adds something, in one line of at most 600 characters.
///
/// Many errors of libraries repeat their causes in their own text; such a cause is left out. Line ends become spaces.
pub fn chain(error: &dyn Error) -> String {
    let mut line = one_line(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let said = one_line(&cause.to_string());
        if !line.contains(&said) {
            line = format!("{line}: {said}");
        }
        source = cause.source();
    }
    if let Some((end, _cut)) = line.char_indices().nth(CHARS_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Said {
        text: String,
        #[source]
        cause: Option<Box<Said>>,
    }

    fn said(texts: &[&str]) -> Said {
        let (first, rest) = texts.split_first().unwrap();
        let cause = (!rest.is_empty()).then(|| Box::new(said(rest)));
        Said { text: (*first).to_owned(), cause }
    }

    #[test]
    fn causes_follow_once() {
        assert_eq!(
            chain(&said(&["opening", "reading x", "no such file"])),
            "opening: reading x: no such file"
        );
        assert_eq!(
            chain(&said(&["opening", "reading x: no such file", "no such file"])),
            "opening: reading x: no such file"
        );
    }

    #[test]
    fn lines_become_one_and_end() {
        assert_eq!(
            chain(&said(&["503", "<Error>\n  <Code>Slow\tDown</Code>\r\n</Error>\n"])),
            "503: <Error> <Code>Slow Down</Code> </Error>"
        );
        let long = chain(&said(&["ä".repeat(700).as_str()]));
        assert_eq!(long.chars().count(), CHARS_MAX + 1);
        assert!(long.ends_with("ä…"));
    }
}
