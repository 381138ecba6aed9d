"""Text that models, tools and files may hold, and that must only ever be looked at."""

from __future__ import annotations

from typing import Final

HOSTILE: Final = (
    "<script>window.pwned = 1</script>",
    '<img src=x onerror="window.pwned = 1">',
    "[click](javascript:window.pwned=1)",
    "![x](https://evil.invalid/pixel.png)",
    "<svg><foreignObject><body onload=window.pwned=1></foreignObject></svg>",
    "<svg/onload=window.pwned=1><animate onbegin=window.pwned=1 attributeName=x dur=1s>",
    "</text></svg></pre></code></details></div><script>window.pwned = 1</script>",
    "</textarea></title></style></noscript></template><script>window.pwned = 1</script>",
    "<!--><script>window.pwned = 1</script>--> <![CDATA[<script>window.pwned = 1</script>]]>",
    "[a](data:text/html;base64,PHNjcmlwdD4=) <a href='vbscript:x'>y</a>",
    "[a]( java\tscript:window.pwned=1) <JAVASCRIPT:window.pwned=1> [b](//evil.invalid/x)",
    "<style>*{display:none}</style><iframe src=//evil.invalid></iframe>",
    "<form action=//evil.invalid><input name=q autofocus onfocus=window.pwned=1></form>",
    "<math><mtext><table><mglyph><style><img src onerror=window.pwned=1></style></table></mtext>",
    "safe\u202etxt.exe \x1b[2J \x00 \u2066hidden\u2069 \u200bzero\u200f \x9b31m \u2028 end",
    "\x1b]8;;https://evil.invalid\x07link\x1b]8;;\x07 \x1b]0;title\x07 \r over",
    '"><h1 onclick=window.pwned=1>',
    "' onmouseover='window.pwned=1' style='position:fixed;inset:0",
    "| <b onmouseover=x> |\n|--|\n| </table><script>window.pwned = 1</script> |",
    "```html\n<script>window.pwned = 1</script>",
    "__proto__",
    "constructor",
    "${window.pwned=1} {{constructor.constructor('window.pwned=1')()}} %s %(x)s {0}",
    "\ud800 lone \udfff",
    "x",
    "é",
    "W" * 10_000,
    "wide " * 2_000,
    "a\n" * 5_000,
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 emoji",
    "שלום עולם، مرحبا بالعالم",
    "Z" + "\u0301" * 300,
    "[" * 1_500,
    '{"a":' * 1_200 + "1" + "}" * 1_200,
    "Z̸̢̛͖͚͗ą̵̛͈l̶̰̔g̴o" * 50,
)
