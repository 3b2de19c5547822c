//! As much XML as S3's documents need.

/// A document in the making.
#[derive(Debug)]
pub(super) struct Document(String);

impl Document {
    pub(super) fn new() -> Self {
        Self("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned())
    }

    pub(super) fn open(&mut self, name: &str) {
        self.push(["<", name, ">"]);
    }

    pub(super) fn close(&mut self, name: &str) {
        self.push(["</", name, ">"]);
    }

    /// An element with text alone.
    pub(super) fn leaf(&mut self, name: &str, text: &str) {
        self.open(name);
        self.0.push_str(&escape(text));
        self.close(name);
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn push(&mut self, parts: [&str; 3]) {
        self.0.extend(parts);
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescape(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    text.replace("&amp;", "&")
}

/// The texts between `<name>` and `</name>`, in order, without looking at what they stand in.
pub(super) fn elements<'a>(document: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = document;
    std::iter::from_fn(move || {
        let from = rest.find(&open)? + open.len();
        let length = rest[from..].find(&close)?;
        let inner = &rest[from..from + length];
        rest = &rest[from + length + close.len()..];
        Some(inner)
    })
}

/// The text of the first element of this name.
pub(super) fn text(document: &str, name: &str) -> Option<String> {
    elements(document, name).next().map(unescape)
}
