"""Main text of a page: one parse, one compiled pass, small forests, the blocks worth keeping.

| step | module |
| --- | --- |
| HTML -> blocks of clean text, and the elements around them | `page`, `scan`, `sheet` |
| block -> numbers | `features`, `context` |
| numbers -> probability -> blocks to keep | `forest`, `select` |
| kept blocks -> text | `layout`, `assemble` |
| text that a page carries in its scripts alone | `script_text` |
| what a page costs before any parser sees it | `bounds` |
"""
