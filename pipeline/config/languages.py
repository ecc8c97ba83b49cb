"""The languages that can be told: the labels of lid.176, as ISO codes, and other names of them.

A language is ISO 639-1 where one exists, else 639-3. The second backend (`eldc`) knows 60 of them.
"""

from __future__ import annotations

import re

UNDETERMINED = "und"

_TABLE = """
af:afr am:amh an:arg ar:ara arz as:asm ast av:ava az:aze azb ba:bak bar bcl be:bel bg:bul bho bn:ben
bo:bod bpy br:bre bs:bos bxr ca:cat cbk ce:che ceb ckb co:cos cs:ces cv:chv cy:cym da:dan de:deu diq
dsb dty dv:div egl el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas fi:fin fr:fra frr fy:fry ga:gle
gd:gla gl:glg gn:grn gom gsw gu:guj gv:glv hbs he:heb hi:hin hif hr:hrv hsb ht:hat hu:hun hy:hye
ia:ina id:ind ie:ile ilo io:ido is:isl it:ita ja:jpn jbo jv:jav ka:kat kk:kaz km:khm kn:kan ko:kor
krc ku:kur kv:kom kw:cor ky:kir la:lat lb:ltz lez li:lim lmo lo:lao lrc lt:lit lv:lav mai mg:mlg mhr
min mk:mkd ml:mal mn:mon mr:mar mrj ms:msa mt:mlt mwl my:mya myv mzn nap nds ne:nep new nhe nl:nld
nn:nno no:nor oc:oci or:ori os:oss pa:pan pam pfl pl:pol pms pnb ps:pus pt:por qu:que rm:roh ro:ron
ru:rus rue sa:san sah sc:srd scn sco sd:snd si:sin sk:slk sl:slv so:som sq:sqi sr:srp su:sun sv:swe
sw:swa ta:tam te:tel tg:tgk th:tha tk:tuk tl:tgl tr:tur tt:tat tyv ug:uig uk:ukr ur:urd uz:uzb vec
vep vi:vie vls vo:vol wa:wln war wuu xal xmf yi:yid yo:yor yue zh:zho
"""
"""All 176, with the 639-3 code behind each 639-1 code."""

_MEMBERS = """
ar:arb az:azj et:ekk fa:pes fa:prs gn:gug he:iw hbs:sh id:in ku:kmr lv:lvs mg:plt mn:khk ms:zsm
ne:npi no:nb no:nob or:ory qu:quy ro:mo sq:als sw:swh tl:fil uz:uzn yi:ydd zh:cmn zh:chi
"""
"""Other codes of a language: members of a macrolanguage (FineWeb-2 names those), retired ones."""


def _pairs(table: str) -> dict[str, str]:
    """Other code -> our code."""
    split = (entry.partition(":") for entry in table.split())
    return {other: code for code, _, other in split if other}


LANGUAGES = tuple(entry.partition(":")[0] for entry in _TABLE.split())
_OTHER = _pairs(_TABLE) | _pairs(_MEMBERS)


def code_of(name: str) -> str | None:
    """Our code for a language tag: `eng`, `de_DE`, `deu_Latn` or `en`; None where nothing fits."""
    first = re.split(r"[-_]", name.strip().lower())[0]
    return first if first in LANGUAGES else _OTHER.get(first)


def check_code(code: str) -> str:
    """`code`, if a document can be told to be in it; ValueError naming the one that is meant."""
    if code in LANGUAGES:
        return code
    if code == UNDETERMINED:
        message = "und is no language: filter.language.und says whether such documents are kept"
        raise ValueError(message)
    meant = code_of(code)
    if meant:
        message = f"no text is ever told to be {code!r}; write {meant!r}"
    else:
        message = (
            f"{code!r} is none of the 176 languages that are told (ISO 639-1 where one exists, "
            f"else 639-3): {' '.join(LANGUAGES)}"
        )
    raise ValueError(message)
