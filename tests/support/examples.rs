//! The examples of the specifications, as they are printed and as they must have been meant.

/// An example without the faults of its print: end tags that name another element or lack their stroke, attributes without
/// quotes, a misspelled element, a message around the document. Empty where no document is left of it.
pub fn mended(name: &str, text: &str) -> String {
    match name {
        "change-notification-example-1-continued" | "change-notification-example-7" => String::new(),
        "v0.1-example-4.3" | "v0.1-example-4.4" | "v0.1-example-4.5" => {
            let end = text.rfind("<urlset>").expect("an end tag without its stroke");
            format!("{}</urlset>{}", &text[..end], &text[end + "<urlset>".len()..])
        }
        "v0.1-example-5.7" => text.replace("</sm:loc>", "</loc>"),
        "v0.1-example-5.5" => {
            let text = text.replace("</sm:loc>", "</loc>").replace(
                "<urlset ",
                "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\" ",
            );
            let (begin, end) = (text.find("<urlset").expect("a Change Set"), text.find("</urlset>").expect("its end"));
            format!("{}</urlset>", &text[begin..end])
        }
        "dlib-figure-10" => text.replace("<conent ", "<content "),
        "dlib-figure-11" => {
            let mut mended = String::new();
            let mut rest = text;
            while let Some(at) = rest.find("=http").map(|at| at + 1) {
                let end = at + rest[at..].find([' ', '>']).expect("an end of the value");
                mended = format!("{mended}{}\"{}\"", &rest[..at], &rest[at..end]);
                rest = &rest[end..];
            }
            mended + rest
        }
        _ => text.to_owned(),
    }
}
