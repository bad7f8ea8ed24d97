#!/usr/bin/env python3
"""score.py [--longest N] FILE|-: Flesch reading ease and grade level of an English text."""
import argparse
import re
import sys


def syllables(word):
    groups = len(re.findall(r"[aeiouy]+", word))
    if word.endswith("e") and not word.endswith("le") and groups > 1:
        groups -= 1
    return max(groups, 1)


def sentences(text):
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
            words = re.findall(r"[A-Za-z][A-Za-z'-]*", sentence)
            if words:
                yield sentence, words


def main():
    parser = argparse.ArgumentParser(description="Score how hard an English text is to read.")
    parser.add_argument("file", help="text file, - for stdin")
    parser.add_argument("--longest", type=int, default=3, help="longest sentences to list")
    args = parser.parse_args()
    try:
        data = sys.stdin.buffer.read() if args.file == "-" else open(args.file, "rb").read()
    except OSError as err:
        print(f"score.py: {err}", file=sys.stderr)
        return 1
    found = list(sentences(data.decode("utf-8", "replace")))
    if not found:
        print("score.py: no English words", file=sys.stderr)
        return 1
    words = [word.lower() for _, ws in found for word in ws]
    length = len(words) / len(found)
    weight = sum(map(syllables, words)) / len(words)
    print(f"{len(found)} sentences, {len(words)} words, {length:.1f} words a sentence")
    print(f"reading ease {206.835 - 1.015 * length - 84.6 * weight:.1f}")
    print(f"grade level {0.39 * length + 11.8 * weight - 15.59:.1f}")
    for sentence, ws in sorted(found, key=lambda item: -len(item[1]))[: max(args.longest, 0)]:
        print(f"{len(ws)} words: {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
