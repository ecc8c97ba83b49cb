"""Formulas, superscripts and subscripts in plain text."""

from __future__ import annotations

import pytest

from pipeline.extractor.page import parse_page


def text(html: str) -> str:
    return "\n".join(parse_page(html).block_texts())


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("10<sup>6</sup> m", "10^6 m"),
        ("10<sup>-6</sup>", "10^-6"),
        ("10<sup>−6</sup>", "10^−6"),
        ("2<sup>n+1</sup>", "2^(n+1)"),
        ("x<sup>2</sup> + m<sup>3</sup>", "x^2 + m^3"),
        ("(a+b)<sup>2</sup>", "(a+b)^2"),
        ("e<sup>x</sup>", "e^x"),
        ("1<sup>st</sup> 2<sup>nd</sup> 21<sup>e</sup>", "1st 2nd 21e"),
        ("n<sup>o</sup> 5, M<sup>me</sup> B", "no 5, Mme B"),
        ("Acme<sup>TM</sup> Acme<sup>®</sup>", "AcmeTM Acme®"),
        ("word<sup>1</sup> next", "word[1] next"),
        ("word<sup><a href=#n>1</a></sup>", "word[1]"),
        ("1990<sup><a href=#n>12</a></sup>", "1990[12]"),
        ("word<sup><a href=#n>[1]</a></sup>", "word[1]"),
        ("word.<sup>1,2</sup>", "word.[1,2]"),
        ("word<sup>1,2</sup>", "word[1,2]"),
        ("word<sup>*</sup>", "word*"),
        ("word <sup>1</sup>", "word 1"),
        ("<sup>1</sup>A note", "[1] A note"),
        ("$19<sup>99</sup>", "$19.99"),
        ("€1,019<sup>99</sup>", "€1,019.99"),
        ("19<sup>.99</sup>", "19.99"),
        ("Na<sup>+</sup>", "Na+"),
        ("H<sub>2</sub>O, Ca(OH)<sub>2</sub>", "H2O, Ca(OH)2"),
        ("x<sub>1</sub>, x<sub>i</sub>, T<sub>max</sub>", "x_1, x_i, T_max"),
        ("1010<sub>2</sub>", "1010_2"),
        ("x<sup></sup>y", "xy"),
        (
            "word<sup>a remark of more than a few words</sup>",
            "word a remark of more than a few words",
        ),
        ("a<sup>b<p>c</p></sup>", "a^b\nc"),
        ("10<sup>10<sup>6</sup></sup>", "10^(10^6)"),
        ("x<sup>a<sub>1</sub></sup> y", "x^(a_1) y"),
    ],
)
def test_raised_and_lowered(html: str, expected: str) -> None:
    assert text(f"<p>{html}") == expected


INLINE = '<script type="math/tex">E = mc^2</script>'
DISPLAY = '<script type="math/tex; mode=display">\na &lt; b\n  + c\n</script>'
ANNOTATION = (
    "<math><semantics><mrow><mi>E</mi><mo>=</mo><mi>m</mi></mrow>"
    '<annotation encoding="application/x-tex">E = mc^2 &lt; \\infty</annotation>'
    '<annotation-xml encoding="MathML-Content"><ci>E</ci></annotation-xml></semantics></math>'
)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (f"so {INLINE} is", "so $E = mc^2$ is"),
        (f"so {DISPLAY} is", "so $$a &lt; b + c$$ is"),
        (f"so {ANNOTATION} is", "so $E = mc^2 < \\infty$ is"),
        (
            f"so <span><span>{ANNOTATION}</span><span aria-hidden=true><span>E</span>=mc2</span>"
            "</span> is",
            "so $E = mc^2 < \\infty$ is",
        ),
        (
            f'so <span>{ANNOTATION}</span><img alt="{{E=mc^2}}"> is',
            "so $E = mc^2 < \\infty$ is",
        ),
        (
            f'<span class="MathJax_Preview">E=mc2</span>{INLINE}',
            "$E = mc^2$",
        ),
        (
            f'<span class="MathJax" data-mathml="<math/>"><nobr>E=</nobr><math><mi>E</mi></math>'
            f"</span>{INLINE}",
            "$E = mc^2$",
        ),
        ('<math alttext="\\frac{1}{2}"><mn>1</mn><mn>2</mn></math>', "$\\frac{1}{2}$"),
        ('<math alttext="one half"><mfrac><mn>1</mn><mn>2</mn></mfrac></math>', "1/2"),
        ("<math><msup><mn>10</mn><mn>6</mn></msup><mo>=</mo><msub><mi>x</mi><mn>1</mn></msub>"
         "</math>", "10^6=x_1"),
        ('so <mjx-container><mjx-math aria-hidden="true"><mjx-mi><mjx-c></mjx-c></mjx-mi>'
         "</mjx-math><mjx-assistive-mml><math><msup><mi>x</mi><mn>2</mn></msup></math>"
         "</mjx-assistive-mml></mjx-container> is", "so x^2 is"),
        ("<math><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup></math>", "x_1^2"),
        ('<script type="math/tex"> </script>x', "x"),
        ('<script type="text/x-math">y</script>x', "x"),
        ("<math><semantics><mi>x</mi><annotation>note</annotation></semantics></math> b", "x b"),
    ],
)  # fmt: skip
def test_formulas_come_out_once(html: str, expected: str) -> None:
    assert text(f"<p>{html}</p>") == expected


def test_what_follows_a_formula_is_not_its_drawing() -> None:
    html = f"<p>{ANNOTATION} then</p><p aria-hidden=true>other text</p>"
    assert text(html) == "$E = mc^2 < \\infty$ then\nother text"
