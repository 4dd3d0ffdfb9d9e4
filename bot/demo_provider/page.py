"""What the provider's page says: who is signed in, who asks for what, Authorize or Refuse.

What lives here: HTML, escaped where it is put together, and its style. What does not: when it is shown and what an answer means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from typing import Final

from bot.demo_provider.accounts import Person

TYPED: Final = "typed"
"""The choice of an address that is not in the list."""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}</title>
<link rel="stylesheet" href="/demo/style.css">
</head>
<body>
<header><span class="mark" aria-hidden="true">D</span><b>Demo account provider</b></header>
<main>
{body}
</main>
<footer>This stands in for the sign-in page of a real service. It is part of the demo, runs on this machine only, and asks for no
password.</footer>
</body>
</html>
"""

_CONSENT: Final = """<h1>{client} asks to use your demo account</h1>
<p>If you authorize it, it may:</p>
<ul>{scopes}</ul>
{problem}
<form method="post" action="/demo/authorize" autocomplete="off">
{hidden}
<fieldset>
<legend>You are signed in as</legend>
{people}
<label class="person"><input type="radio" name="who" value="{typed}"{typed_checked}><span>Somebody else</span></label>
<label class="typed"><span>Their email address</span>
<input type="email" name="email" maxlength="200" value="{email}" placeholder="you@example.test"></label>
<p class="hint">An address that is typed here counts as not verified.</p>
</fieldset>
<div class="acts">
<button class="yes" name="decision" value="authorize">Authorize</button>
<button name="decision" value="refuse" formnovalidate>Refuse</button>
</div>
</form>
<p class="hint">Either way you go back to <b>{origin}</b>.</p>"""


@dataclass(frozen=True, slots=True)
class Consent:
    """What the page asks, and what was filled in so far."""

    client: str
    scopes: Sequence[str]
    _: KW_ONLY
    people: Sequence[Person]
    hidden: Mapping[str, str]
    origin: str
    who: str
    email: str = ""
    problem: str = ""


def consent_page(asked: Consent) -> str:
    """Draw the page that asks."""
    return _PAGE.format(
        title="Authorize: demo account provider",
        body=_CONSENT.format(
            client=escape(asked.client),
            scopes="".join(f"<li>{escape(scope)}</li>" for scope in asked.scopes),
            problem=f'<p class="problem" role="alert">{escape(asked.problem)}</p>' if asked.problem else "",
            hidden="\n".join(_hidden(name, value) for name, value in asked.hidden.items()),
            people="\n".join(_person(person, checked=person.email == asked.who) for person in asked.people),
            typed=TYPED,
            typed_checked=" checked" if asked.who == TYPED else "",
            email=escape(asked.email),
            origin=escape(asked.origin),
        ),
    )


def refusal_page(title: str, text: str) -> str:
    """Draw the page for a request that leads nowhere."""
    body = f"<h1>{escape(title)}</h1>\n<p>{escape(text)}</p>"
    return _PAGE.format(title=escape(title), body=body)


def _hidden(name: str, value: str) -> str:
    return f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'


def _person(person: Person, *, checked: bool) -> str:
    return (
        f'<label class="person"><input type="radio" name="who" value="{escape(person.email)}"{" checked" if checked else ""}>'
        f"<span>{escape(person.name)}</span><small>{escape(person.email)}</small></label>"
    )


STYLE: Final = """
:root {
  color-scheme: light dark;
  --bg: light-dark(#eef0f6, #14151c);
  --surface: light-dark(#ffffff, #1d1f29);
  --line: light-dark(#c9cddd, #3a3e50);
  --ink: light-dark(#1c1f33, #e9eaf2);
  --muted: light-dark(#545973, #a4a9c0);
  --brand: light-dark(#5a3fa8, #b9a5f5);
  --on-brand: light-dark(#ffffff, #1a1430);
  --bad: light-dark(#b3261e, #ff8f85);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
  color: var(--ink);
  background: var(--bg);
}
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; }
header { display: flex; align-items: center; gap: 10px; padding: 12px 20px; background: var(--brand); color: var(--on-brand); }
.mark { width: 28px; height: 28px; border-radius: 50%; display: grid; place-items: center; background: var(--on-brand);
  color: var(--brand); font-weight: 700; }
main { max-width: 460px; margin: 32px auto 0; padding: 24px; background: var(--surface); border: 1px solid var(--line);
  border-radius: 4px; }
h1 { font-size: 20px; line-height: 1.3; margin: 0 0 12px; text-wrap: balance; }
p, ul { margin: 0 0 12px; }
ul { padding-left: 22px; }
fieldset { border: 1px solid var(--line); border-radius: 4px; padding: 8px 14px 12px; margin: 0 0 16px; min-width: 0; }
legend { padding: 0 6px; color: var(--muted); font-size: 14px; }
.person { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 8px; padding: 8px 0; cursor: pointer; }
.person small { color: var(--muted); overflow-wrap: anywhere; }
.typed span { display: block; font-size: 14px; color: var(--muted); }
input[type="radio"] { accent-color: var(--brand); }
input[type="email"] { width: 100%; font: inherit; color: inherit; background: var(--bg); border: 1px solid var(--muted);
  border-radius: 4px; padding: 8px 10px; }
.hint, footer { color: var(--muted); font-size: 14px; }
.hint { margin: 8px 0 0; overflow-wrap: anywhere; }
.problem { color: var(--bad); border-left: 3px solid var(--bad); padding-left: 10px; }
.acts { display: flex; flex-wrap: wrap; gap: 10px; }
button { font: inherit; font-weight: 600; color: inherit; background: none; border: 1px solid var(--muted); border-radius: 4px;
  padding: 9px 18px; cursor: pointer; flex: 1 1 150px; }
button.yes { background: var(--brand); border-color: var(--brand); color: var(--on-brand); }
:focus-visible { outline: 3px solid var(--brand); outline-offset: 2px; }
footer { max-width: 460px; margin: 16px auto 32px; padding: 0 24px; }
@media (max-width: 500px) { main { margin-top: 0; border-width: 0 0 1px; border-radius: 0; padding: 20px; }
  footer { padding: 0 20px; } }
"""
