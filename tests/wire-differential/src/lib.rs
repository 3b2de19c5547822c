//! Holds nothing: the tests of this package compare two codecs.
