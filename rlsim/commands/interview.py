"""`rlsim interview`: questions on RL systems design, answered with numbers computed when asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsim.commands.options import Json, place, print_json
from rlsim.errors import UserError

app = typer.Typer(
    help="Questions on RL systems design; the numbers of an answer are simulated when it is asked.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Lang = Annotated[str, typer.Option("--lang", help="en or zh.")]
Own = Annotated[Path | None, typer.Option("--scenario", help="Answer for this system instead of the shipped one.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Only this topic.")]


@app.command("list")
def list_(topic: Topic = None, lang: Lang = "en") -> None:
    """The questions, by topic."""
    from rlsim import interview

    _known(topic, lang)
    for name, title in interview.TOPICS.items():
        asked = [q for q in interview.questions() if q.topic == name]
        if topic in (None, name) and asked:
            typer.echo(f"{title[lang]} ({name})")
            for question in asked:
                typer.echo(f"  {question.id:18} {question.question.of(lang)}")


@app.command()
def ask(
    question: Annotated[str, typer.Argument(metavar="ID", help="See `rlsim interview list`.")],
    lang: Lang = "en",
    scenario: Own = None,
    json_: Json = False,
) -> None:
    """One answer."""
    from rlsim import interview
    from rlsim.views import interview as view

    answer = interview.ask(question, lang=lang, scenario=scenario)
    if json_:
        print_json(answer.as_dict())
    else:
        typer.echo(view.one(answer))


@app.command()
def sheet(
    lang: Lang = "en",
    scenario: Own = None,
    topic: Topic = None,
    out: Annotated[Path | None, typer.Option("--out", parser=place, help="Write into this file, .md or .html.")] = None,
) -> None:
    """All answers, to print."""
    from rlsim import interview
    from rlsim.views import files, progress
    from rlsim.views import interview as view

    _known(topic, lang)
    if out is not None and out.suffix not in (".md", ".html"):
        raise UserError(f"no sheet in {out.suffix or 'a file without ending'}", key="--out", fix="a .md or .html file")
    with progress.counted("answers", sum(topic in (None, q.topic) for q in interview.questions())) as done:
        answers = interview.sheet(lang=lang, scenario=scenario, topic=topic, done=lambda: done(1))
    if out is None:
        typer.echo(view.markdown(answers))
    else:
        files.write_text(out, view.page(answers) if out.suffix == ".html" else view.markdown(answers), "--out")
        typer.echo(f"wrote {out}")


def _known(topic: str | None, lang: str) -> None:
    from rlsim.interview import LANGUAGES, TOPICS

    if lang not in LANGUAGES:
        raise UserError(f"no language {lang!r}", key="--lang", fix=" or ".join(LANGUAGES))
    if topic is not None and topic not in TOPICS:
        raise UserError(f"no topic {topic!r}", key="--topic", fix=", ".join(TOPICS))
