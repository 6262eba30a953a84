"""Prompt files: what is read, and that every complaint names the file, the line and the way out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.prompts import MAX_BYTES, MAX_PROMPTS, PromptError, parse_ids, read_prompts
from model.request import Prompt


def test_text_keeps_spaces_and_skips_blank_lines() -> None:
    data = "\ufeffOnce upon \r\n\r\n   \n  a time\rend".encode()
    assert read_prompts("p.TXT", data) == (Prompt("Once upon "), Prompt("  a time"), Prompt("end"))


def test_text_line_may_hold_separators_that_are_no_line_ends() -> None:
    assert read_prompts("p.txt", "a\u2028b\x0cc\n".encode()) == (Prompt("a\u2028b\x0cc"),)


def test_json_lines() -> None:
    lines = '{"prompt": "a\\nb", "label": 3}\n\n{"text": "c"}\n{"ids": [5, 6], "prompt": null}\n'
    assert read_prompts("p.jsonl", lines.encode()) == (Prompt("a\nb"), Prompt("c"), Prompt(ids=(5, 6)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('id,Prompt\n1,"a, b"\n2,"two\nlines"\n', (Prompt("a, b"), Prompt("two\nlines"))),
        ("text\nx\n\ny\n", (Prompt("x"), Prompt("y"))),
        ('ids\n5 6 7\n"[5,6]"\n', (Prompt(ids=(5, 6, 7)), Prompt(ids=(5, 6)))),
        ('prompt,ids\na,\n,"1,2"\n', (Prompt("a"), Prompt(ids=(1, 2)))),
        ("first prompt\nsecond\n", (Prompt("first prompt"), Prompt("second"))),
        ('"a, quoted"\n', (Prompt("a, quoted"),)),
    ],
)
def test_csv(text: str, expected: tuple[Prompt, ...]) -> None:
    assert read_prompts("p.csv", text.encode()) == expected


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("p.docx", b"x", ("p.docx", ".txt", ".jsonl", ".csv")),
        ("p", b"x", ("p has no ending",)),
        ("p.txt", b"", ("p.txt", "no prompt")),
        ("p.txt", b" \n\n", ("p.txt", "no prompt")),
        ("p.txt", b"a\0b", ("p.txt", "NUL", "UTF-8")),
        ("p.txt", "hello".encode("utf-16"), ("p.txt", "UTF-8")),
        ("p.txt", b"ok\nok\n\xff\xfe", ("p.txt, line 3", "UTF-8")),
        ("p.jsonl", b'{"prompt": "a"}\n{oops\n', ("p.jsonl, line 2", "no JSON", "one object per line")),
        ("p.jsonl", b"[" * 100_000, ("p.jsonl, line 1", "no JSON")),
        ("p.jsonl", b'"a"\n', ("p.jsonl, line 1", "object", "str")),
        ("p.jsonl", b'{"question": "a"}\n', ("p.jsonl, line 1", "exactly one of", "none of them")),
        ("p.jsonl", b'{"prompt": "a", "ids": [1]}\n', ("line 1", "prompt and ids")),
        ("p.jsonl", b'{"prompt": 5}\n', ("line 1", "must be text", "int")),
        ("p.jsonl", b'{"prompt": ""}\n', ("line 1", "empty")),
        ("p.jsonl", b'{"prompt": "\\ud800"}\n', ("line 1", "surrogate")),
        ("p.jsonl", b'{"ids": []}\n', ("line 1", "whole numbers")),
        ("p.jsonl", b'{"ids": [1, true]}\n', ("line 1", "whole numbers")),
        ("p.jsonl", b'{"ids": [1.5]}\n', ("line 1", "whole numbers")),
        ("p.jsonl", b'{"ids": 5}\n', ("line 1", "whole numbers")),
        ("p.jsonl", b'{"ids": [-1]}\n', ("line 1", "negative")),
        ("p.csv", b"question,answer\nq,a\n", ("p.csv, line 1", "'question'", "prompt")),
        ("p.csv", b"one\ntwo, three\n", ("p.csv, line 2", "2 columns", "quote")),
        ("p.csv", b"id,prompt\n1,a\n2,\n", ("p.csv, line 3", "exactly one of")),
        ("p.csv", b"prompt,ids\na,5\n", ("p.csv, line 2", "prompt and ids")),
        ("p.csv", b"ids\nfive\n", ("p.csv, line 2", "'five'", "5,6,7")),
        ("p.csv", b'prompt\n"open\n', ("p.csv, line 2", "no CSV")),
    ],
)
def test_complaints(name: str, data: bytes, parts: tuple[str, ...]) -> None:
    with pytest.raises(PromptError) as caught:
        read_prompts(name, data)
    for part in parts:
        assert part in str(caught.value)


def test_caps() -> None:
    assert len(read_prompts("p.txt", b"a\n" * MAX_PROMPTS)) == MAX_PROMPTS
    with pytest.raises(PromptError, match=f"more than {MAX_PROMPTS} prompts"):
        read_prompts("p.txt", b"a\n" * (MAX_PROMPTS + 1))
    assert read_prompts("p.txt", b"a" * MAX_BYTES)[0].text == "a" * MAX_BYTES
    with pytest.raises(PromptError, match="4,194,305 bytes"):
        read_prompts("p.txt", b"a" * (MAX_BYTES + 1))


def test_parse_ids_names_its_place() -> None:
    assert parse_ids("--ids", " 5, 6 7 ") == (5, 6, 7)
    for text in ("", "5;6", "-1", "²", "1e3", "99999999999"):
        with pytest.raises(PromptError, match=r"^--ids: "):
            parse_ids("--ids", text)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1, max_size=20)
)
def test_json_lines_give_back_any_text(texts: list[str]) -> None:
    data = "\n".join(json.dumps({"prompt": text}) for text in texts).encode()
    assert tuple(prompt.text for prompt in read_prompts("p.jsonl", data)) == tuple(texts)


@given(st.sampled_from([".txt", ".jsonl", ".csv"]), st.binary(max_size=200))
def test_any_bytes_give_prompts_or_a_sentence(ending: str, data: bytes) -> None:
    prompts: tuple[Prompt, ...] = ()
    sentence = ""
    try:
        prompts = read_prompts(f"p{ending}", data)
    except PromptError as error:
        sentence = str(error)
    assert bool(prompts) != sentence.startswith(f"p{ending}")
