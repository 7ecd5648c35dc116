//! RFC 5261: operations, namespaces, and the error conditions of its section 5.

use super::{Condition, Kind, condition, first};

/// Operations, each within `<p>`: target, operations, result.
#[test]
fn operations() {
    for (old, operations, new) in [
        ("<a><b/></a>", r#"<add sel="a/b">x</add>"#, "<a><b>x</b></a>"),
        ("<a><b c='1' /></a>", r#"<add sel="/a/b"><d/></add>"#, "<a><b c='1'><d/></b></a>"),
        ("<a><b/></a>", r#"<add sel="a" pos="prepend">x<y/>z</add>"#, "<a>x<y/>z<b/></a>"),
        (
            "<a>one<b/>two</a>",
            r#"<add sel="a/text()[2]" pos="after">new<c/>elem</add>"#,
            "<a>one<b/>twonew<c/>elem</a>",
        ),
        (
            "<a>one<b/>two</a>",
            r#"<add sel="a/text()[2]" pos="before">new<c/>elem</add>"#,
            "<a>one<b/>new<c/>elemtwo</a>",
        ),
        (
            "<a/>",
            r#"<add sel="a" pos="before"><!--c--></add><add sel="a" pos="after"><?p i?></add>"#,
            "<!--c--><a/><?p i?>",
        ),
        ("<a><![CDATA[x]]>y&amp;</a>", r#"<replace sel="a/text()">z</replace>"#, "<a>z</a>"),
        (
            "<a>x<b/>y</a>",
            r#"<remove sel="a/b"/><replace sel="a/text()"><![CDATA[<]]></replace>"#,
            "<a><![CDATA[<]]></a>",
        ),
        ("<a>x</a>", r#"<replace sel="a/text()"/>"#, "<a/>"),
        ("<a x='1' y='2'/>", r#"<replace sel="a/@x">"it's &lt;"</replace>"#, "<a x='\"it&apos;s &lt;\"' y='2'/>"),
        ("<a x=\"1\"/>", r#"<replace sel="a/@x"/>"#, "<a x=\"\"/>"),
        ("<a x=\"1\"  y='2' />", r#"<remove sel="a/@x"/>"#, "<a  y='2' />"),
        ("<a>\n <b/>\n <c/>\n</a>", r#"<remove sel="a/b" ws="before"/>"#, "<a>\n <c/>\n</a>"),
        ("<a>\n <b/>\n</a>", r#"<remove sel="a/b" ws="both"/>"#, "<a/>"),
        ("<a><b>1</b><b>2</b></a>", r#"<remove sel="a/b[.='2']"/>"#, "<a><b>1</b></a>"),
        ("<a><b><c>1</c></b><b><c>2</c></b></a>", r#"<remove sel='*/b[c="2"]'/>"#, "<a><b><c>1</c></b></a>"),
        ("<a><b x='1'/><b x='2'/><b x='2'/></a>", r#"<remove sel="a/b[@x='2'][2]"/>"#, "<a><b x='1'/><b x='2'/></a>"),
        ("<a><b x='1'/><b x='2'/><b x='2'/></a>", r#"<remove sel="a/*[2][@x='2']"/>"#, "<a><b x='1'/><b x='2'/></a>"),
        ("<a><b xml:id='k'/></a>", r#"<add sel="id('k')" type="@n">1</add>"#, "<a><b xml:id='k' n='1'/></a>"),
        (
            "<!DOCTYPE a [<!ATTLIST b i ID #IMPLIED>]><a><b i='k'><c/></b></a>",
            r#"<remove sel="id('k')/c"/>"#,
            "<!DOCTYPE a [<!ATTLIST b i ID #IMPLIED>]><a><b i='k'/></a>",
        ),
        ("<a>&unknown;<b/></a>", r#"<remove sel="a/b"/>"#, "<a>&unknown;</a>"),
        (
            "<a><?t 1?><?u 2?><!--1--><!--2--></a>",
            r#"<remove sel="a/processing-instruction('u')"/><remove sel="a/comment()[2]"/>"#,
            "<a><?t 1?><!--1--></a>",
        ),
        ("<a>\r\n<b/></a>\r\n", "<add sel=\"a\">\n</add>", "<a>\r\n<b/>\r\n</a>\r\n"),
        ("<a><b/></a>", "<replace sel='a/b'>\n  <c/>\n</replace>", "<a><c/></a>"),
        ("<a><b/></a>", "<replace sel='a'><c/></replace>", "<c/>"),
    ] {
        let patch = format!("<p>\n<!-- between -->{operations}\n</p>");
        assert_eq!(first(Kind::XmlPatch, old, &patch).as_deref(), Ok(new), "{old} {operations}");
    }
}

/// Namespaces (4.2): target, what the patch declares, operations, result.
#[test]
fn namespaces() {
    for (old, declarations, operations, new) in [
        // Selectors: by namespace, whatever the prefixes; without prefix, in the default namespace.
        ("<x:a xmlns:x='u'><x:b/></x:a>", "xmlns:y='u'", "<p:remove sel='y:a/y:b'/>", "<x:a xmlns:x='u'/>"),
        ("<x:a xmlns:x='u'><x:b/></x:a>", "xmlns='u'", "<p:remove sel='a/b'/>", "<x:a xmlns:x='u'/>"),
        ("<a xmlns='u'><b xmlns=''/><b/></a>", "xmlns:u='u'", "<p:remove sel='u:a/b'/>", "<a xmlns='u'><b/></a>"),
        ("<a><b x:k='1' xmlns:x='u'/></a>", "xmlns:y='u'", "<p:remove sel=\"a/b[@y:k='1']\"/>", "<a/>"),
        // Added content: the target's prefix for the same namespace.
        (
            "<a xmlns:b='u'/>",
            "xmlns:a='u'",
            "<p:add sel='a'><a:bar a:k='1' k='2'/></p:add>",
            "<a xmlns:b='u'><b:bar b:k='1' k='2'/></a>",
        ),
        ("<a xmlns='u'/>", "xmlns:a='u'", "<p:add sel='a:a'><a:bar>t</a:bar></p:add>", "<a xmlns='u'><bar>t</bar></a>"),
        ("<x:a xmlns:x='u'/>", "xmlns='u'", "<p:add sel='a'><bar/></p:add>", "<x:a xmlns:x='u'><x:bar/></x:a>"),
        // More than one prefix: the same, then the context node's, then the one before in the alphabet.
        (
            "<x:a xmlns:x='u' xmlns:y='u'/>",
            "xmlns:y='u'",
            "<p:add sel='y:a'><y:b/></p:add>",
            "<x:a xmlns:x='u' xmlns:y='u'><y:b/></x:a>",
        ),
        (
            "<y:a xmlns:x='u' xmlns:y='u'/>",
            "xmlns:z='u'",
            "<p:add sel='z:a'><z:b/></p:add>",
            "<y:a xmlns:x='u' xmlns:y='u'><y:b/></y:a>",
        ),
        (
            "<a xmlns:x='u' xmlns:y='u'/>",
            "xmlns:xx='u'",
            "<p:add sel='a'><xx:b/></p:add>",
            "<a xmlns:x='u' xmlns:y='u'><x:b/></a>",
        ),
        (
            "<a xmlns:x='u' xmlns:y='u'/>",
            "xmlns:b='u'",
            "<p:add sel='a'><b:b/></p:add>",
            "<a xmlns:x='u' xmlns:y='u'><x:b/></a>",
        ),
    ] {
        namespaces_are(old, declarations, operations, new);
    }
}

fn namespaces_are(old: &str, declarations: &str, operations: &str, new: &str) {
    let patch = format!("<p:patch xmlns:p='urn:ietf:rfc:7351' {declarations}>{operations}</p:patch>");
    assert_eq!(first(Kind::XmlPatch, old, &patch).as_deref(), Ok(new), "{old} {declarations} {operations}");
}

/// The same, where a prefix is to be declared, and of attributes and the namespace axis.
#[test]
fn namespaces_are_declared() {
    for (old, declarations, operations, new) in [
        // No prefix: declared at what is added; what the content declares itself stays.
        ("<a/>", "xmlns:b='u'", "<p:add sel='a'><c><b:d/></c></p:add>", "<a><c xmlns:b=\"u\"><b:d/></c></a>"),
        ("<a xmlns:b='v'/>", "xmlns:b='u'", "<p:add sel='a'><b:c/></p:add>", "<a xmlns:b='v'><b:c xmlns:b='u'/></a>"),
        (
            "<a xmlns:b='v'/>",
            "xmlns:b='u' xmlns:c='v'",
            "<p:add sel='a'><c:d><b:e/></c:d></p:add>",
            "<a xmlns:b='v'><b:d><b:e xmlns:b='u'/></b:d></a>",
        ),
        (
            "<a xmlns:b='u'/>",
            "",
            "<p:add sel='a'><c:d xmlns:c='u'><c:e/></c:d></p:add>",
            "<a xmlns:b='u'><c:d xmlns:c='u'><c:e/></c:d></a>",
        ),
        (
            "<a xmlns='u'/>",
            "xmlns:u='u'",
            "<p:add sel='u:a'><b><c/></b></p:add>",
            "<a xmlns='u'><b xmlns=''><c/></b></a>",
        ),
        ("<a/>", "xmlns='u'", "<p:add sel='*'><b><c/></b></p:add>", "<a><b xmlns=\"u\"><c/></b></a>"),
        // Attributes are in no default namespace.
        (
            "<a xmlns='u' xmlns:q='u'/>",
            "xmlns:u='u'",
            "<p:add sel='u:a' type='@u:k'>1</p:add>",
            "<a xmlns='u' xmlns:q='u' q:k='1'/>",
        ),
        (
            "<a xmlns='u'/>",
            "xmlns:u='u'",
            "<p:add sel='u:a' type='@u:k'>1</p:add>",
            "<a xmlns='u' xmlns:u='u' u:k='1'/>",
        ),
        ("<a/>", "", "<p:add sel='a' type='@xml:lang'>en</p:add>", "<a xml:lang=\"en\"/>"),
        // The namespace axis.
        (
            "<a xmlns:x='u'><x:b/></a>",
            "xmlns:y='v'",
            "<p:replace sel='a/namespace::x'>v</p:replace><p:remove sel='a/y:b'/>",
            "<a xmlns:x='v'/>",
        ),
        (
            "<a xmlns:x='u'><b xmlns:x='v'><x:c/></b></a>",
            "",
            "<p:remove sel='a/namespace::x'/>",
            "<a><b xmlns:x='v'><x:c/></b></a>",
        ),
        ("<a k='1'/>", "", "<p:add sel='a' type='namespace::x'>u</p:add>", "<a xmlns:x='u' k='1'/>"),
    ] {
        namespaces_are(old, declarations, operations, new);
    }
}

/// The error conditions of section 5: target, operations, condition.
#[test]
fn error_conditions() {
    use Condition::*;
    let ns = "<a xmlns:x='u'><x:b/><c/></a>";
    for (old, operations, expected) in [
        ("<a/>", "<add>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='a//b'>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='a['>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='a[0]'>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='@a/b'>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='/'>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='a' pos='middle'>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='a' type='k'>1</add>", InvalidAttributeValue),
        ("<a/>", "<add sel='a' type='@k'><b/></add>", InvalidAttributeValue),
        ("<a/>", "<add sel='a' type='@k'><![CDATA[1]]></add>", InvalidAttributeValue),
        ("<a k='1'/>", "<add sel='a' type='@k'>1</add>", InvalidAttributeValue),
        ("<a k='1'/>", "<remove sel='a/@k' ws='after'/>", InvalidAttributeValue),
        ("<a/>", "<add sel='z:a'>1</add>", InvalidNamespacePrefix),
        ("<a/>", "<add sel='a'>&e;</add>", InvalidEntityDeclaration),
        ("<a/>", "<add sel='a'><z:b/></add>", InvalidNamespacePrefix),
        ("<a/>", "<remove sel='a/namespace::x'/>", InvalidNamespacePrefix),
        (ns, "<remove sel='a/namespace::x'/>", InvalidNamespacePrefix),
        (ns, "<remove sel='a/c/namespace::x'/>", InvalidNamespaceUri),
        (ns, "<replace sel='a/namespace::x'/>", InvalidNamespaceUri),
        (ns, "<add sel='a' type='namespace::x'>v</add>", InvalidNamespacePrefix),
        (ns, "<replace sel='a/c'>text</replace>", InvalidNodeTypes),
        (ns, "<replace sel='a/c'><d/><e/></replace>", InvalidNodeTypes),
        ("<a>t</a>", "<replace sel='a/text()'><d/></replace>", InvalidNodeTypes),
        ("<a/>", "<move sel='a'/>", InvalidPatchDirective),
        ("<a>t</a>", "<add sel='a/text()'>1</add>", InvalidPatchDirective),
        ("<a/>", "<remove sel='a'/>", InvalidRootElementOperation),
        ("<a/>", "<add sel='a' pos='after'><b/></add>", InvalidRootElementOperation),
        ("<a/>", "<add sel='a' pos='after'>text</add>", InvalidXmlPrologOperation),
        ("<a><b/></a>", "<remove sel='a/b' ws='after'/>", InvalidWhitespaceDirective),
        ("<a><b/> x</a>", "<remove sel='a/b' ws='after'/>", InvalidWhitespaceDirective),
        ("<a><b/></a>", "<remove sel='b'/>", UnlocatedNode),
        ("<a><b/><b/></a>", "<remove sel='a/b'/>", UnlocatedNode),
        ("<a/> ", "<remove sel='text()'/>", UnlocatedNode),
        ("<a><b id='k'/></a>", "<remove sel=\"id('k')\"/>", UnsupportedIdFunction),
        ("<a><b xml:id='k'/></a>", "<remove sel=\"id('j')\"/>", UnlocatedNode),
        ("<a/>", "text", InvalidDiffFormat),
        ("<a/>", "<add sel='a'>", InvalidDiffFormat),
        ("<a/>", "<add sel='a' sel='a'/>", InvalidDiffFormat),
    ] {
        let result = first(Kind::XmlPatch, old, &format!("<p>{operations}</p>"));
        assert_eq!(condition(result.clone()), Some(expected), "{old} {operations}: {result:?}");
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with(expected.name()), "{text}");
    }
    let entity = "<!DOCTYPE p [<!ENTITY e 'x'>]><p><add sel='a'>&e;</add></p>";
    assert_eq!(condition(first(Kind::XmlPatch, "<a/>", entity)), Some(InvalidEntityDeclaration));
    for old in ["", "<a>", "<a></b>", "text", "<a/><b/>", "<a b=c/>", "<a>&</a>", "<a/><!DOCTYPE a>", "<a b='<'/>"] {
        assert!(first(Kind::XmlPatch, old, "<p/>").is_err(), "{old}");
    }
    let text = first(Kind::XmlPatch, "<a/>", "<p>\n<add sel='a'/>\n<remove sel='a/b'/></p>").unwrap_err().to_string();
    assert_eq!(text, "unlocated-node: operation 2, line 3, remove at \"a/b\": there is no such node");
}
