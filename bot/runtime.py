"""A bot with its store open: what one process runs.

What lives here: putting the parts together, start and drain. What does not: listening (bot/server/), commands (bot/cli.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot import formats
from bot.access import members_only
from bot.answers import Answers
from bot.app import Bot
from bot.connections.connections import Connections
from bot.connections.declared import address_problems
from bot.console.board import Board
from bot.egress import Egress
from bot.errors import BadApp, NotReady
from bot.flows.accounts import Lending
from bot.flows.surface import InConversation
from bot.ingress import Ingress, Taken
from bot.leftovers import Leftovers
from bot.moved import clock_of, console_of
from bot.outdated import warn_of_outdated
from bot.people import People
from bot.prompts import Prompts
from bot.pulse import Pulse
from bot.session.handoff import Deploy
from bot.session.live import WarmHistories
from bot.session.ready import ReadyAgent, ready
from bot.session.runner import SessionRunner
from bot.session.signing import Signing
from bot.sessions import Sessions
from bot.settings import Role, Settings, version
from channels.console import Console, ConsolePlatform
from channels.contract import Channel, Closable
from channels.errors import ChannelError
from channels.http import WebhookRequest, WebhookResponse
from durable_core.clock import Clock
from durable_core.crypto import KeyRing
from durable_core.engine.runner import Runner
from durable_core.errors import NotFound
from durable_core.keys import Keys
from durable_core.model import Abilities, Interaction, Lane, RunKind
from durable_core.registry import Registry
from durable_core.store import Store
from durable_core.stores.open import StoreOptions, open_store
from durable_core.stranding import Strandings
from durable_core.streams import Streams
from durable_core.versions import fingerprint
from durable_core.worker import Held, Worker, WorkerOptions

if TYPE_CHECKING:
    from bot.outgoing import Outgoing
    from bot.signins.signins import SignIns

log = logging.getLogger("moorings.runtime")

CONSOLE_FILE = "console.db"
CLOSING_SECONDS = 5.0
"""How long a drain waits for what a sign-in brings; what is cut off then is asked for anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """What a worker does with what it takes."""

    runner: SessionRunner
    flows: Runner
    egress: Egress
    answers: Answers

    async def advance(self, held: Held) -> None:
        """Advance a session, or a workflow that works for one."""
        if held.claim.kind is RunKind.WORKFLOW:
            await self.flows.advance(held)
        else:
            await self.runner.advance(held)

    async def send(self, lane: Lane) -> None:
        """Send what an address is owed."""
        await self.egress.send(lane)

    async def evaluate(self, interaction: Interaction) -> None:
        """Decide who may answer."""
        await self.answers.evaluate(interaction)


@dataclass(slots=True)
class WayOut:
    """The guarded HTTP client of a process, made when it is first asked for: importing it takes long, and many need none.

    Beside public hosts it reaches the origins that the settings and the author's connections name.
    """

    bot: Bot
    settings: Settings
    made: Outgoing | None = None

    def __call__(self) -> Outgoing:
        """Return it."""
        if self.made is None:
            from bot.outgoing import Outgoing  # noqa: PLC0415 - see above

            named = (origin for connection in self.bot.connections.values() for origin in connection.trusted)
            self.made = Outgoing(trusted=(*self.settings.trusted_origins, *named))
        return self.made


@dataclass(slots=True, kw_only=True)
class Runtime:
    """One process's running app. `start` begins, `drain` stops taking work, `close` ends."""

    bot: Bot
    settings: Settings
    role: Role
    store: Store
    streams: Streams
    sessions: Sessions
    prompts: Prompts
    answers: Answers
    taker: Ingress
    leftovers: Leftovers
    pulse: Pulse
    agents: dict[str, ReadyAgent]
    channels: dict[str, Channel]
    platform: ConsolePlatform | None
    console: Board | None
    clock: Clock
    connections: Connections
    way_out: WayOut
    options: WorkerOptions = field(default_factory=WorkerOptions)
    sign_ins: SignIns | None = None
    worker: Worker | None = None
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _taking: bool = False
    _sweepers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def outgoing(self) -> Outgoing:
        """The one guarded way out."""
        return self.way_out()

    async def start(self) -> None:
        """Begin to work, and take what the console's platform could not hand over before."""
        self.streams.start()
        if self.role is not Role.WEB:
            self.worker = await self._new_worker()
            await self.worker.start()
            self._sweepers.append(asyncio.create_task(self._sweep(), name="moorings-sweep"))
        if self.sign_ins is not None:
            self._sweepers.append(asyncio.create_task(self.sign_ins.keep_sweeping(), name="moorings-sign-ins"))
        self._taking = True
        if self.console is not None:
            await self.console.start()

    async def _sweep(self) -> None:
        await warn_of_outdated(self.store, self.agents)
        await self.leftovers.keep_expiring()

    async def run_due(self, limit: int | None = None) -> int:
        """In place of `start`: do what is due, then stop; how often a session was taken."""
        while self.sign_ins is not None and await self.sign_ins.sweep():
            pass
        return await (await self._new_worker()).until_idle(limit)

    async def _new_worker(self) -> Worker:
        deps = await self._stack.enter_async_context(self.bot.open_deps(self.settings))
        owner = self.store.incarnation
        abilities = self.leftovers.strandings.abilities
        runner = SessionRunner(
            store=self.store,
            agents=self.agents,
            deps=deps,
            warm=WarmHistories(self.store),
            answers=self.answers,
            access=self.bot.access,
            limits=self.bot.limits,
            policies=self.answers.threads,
            people=self.answers.people,
            deploy=Deploy(
                name=self.settings.deployment,
                lifetime_ms=self.bot.lifetime_ms,
                code=abilities.code,
                transcripts=self.bot.inherit_transcript,
            ),
            keep_ms=self.bot.retention.keep_ms,
            signing=Signing(accounts=self.connections, private=self._is_private),
        )
        flows = Runner(
            store=self.store,
            registry=self.bot.registry,
            clock=self.clock,
            public_url=self.settings.public_url,
            keep_ms=self.bot.retention.keep_ms,
            surface=InConversation(judged_by_code=self.bot.access is not members_only),
            deps=deps,
            lend=Lending(connections=self.connections, private=self._is_private),
        )
        flows.abilities = abilities
        egress = Egress(store=self.store, channels=self.channels, owner=owner, leftovers=self.leftovers, sign_ins=self.sign_ins)
        duties = Duties(runner=runner, flows=flows, egress=egress, answers=self.answers)
        deployment = self.settings.deployment
        return Worker(self.store, duties, owner=owner, deployment=deployment, abilities=abilities, options=self.options)

    def _is_private(self, name: str) -> bool:
        """Whether a channel can show something to one person alone; one that is no longer the app's shows nothing."""
        return name in self.channels and self.channels[name].capabilities.private

    async def ready(self) -> bool:
        """Tell whether new work would be taken, and done: not while the database or this process's own worker is away."""
        control = self.console.worker if self.console is not None else None
        return self._taking and (control is None or control.state == "up") and await self.pulse.beats()

    async def ingress(self, channel: str, request: WebhookRequest) -> WebhookResponse:
        """Verify, parse and admit what a channel's platform sends. Raises: NotFound."""
        return (await self.take(channel, request)).response

    async def take(self, channel: str, request: WebhookRequest) -> Taken:
        """As `ingress`, with what it led to."""
        if channel not in self.channels:
            raise NotFound("channel", channel)
        return await self.taker.receive(channel, request)

    async def drain(self, seconds: float = 30.0) -> None:
        """Stop taking work; finish what runs, or give it back."""
        self._taking = False
        if self.console is not None:
            await self.console.stop()
        for sweeper in self._sweepers:
            sweeper.cancel()
        if self._sweepers:
            await asyncio.wait(self._sweepers)
            self._sweepers.clear()
        if self.sign_ins is not None:
            await self.sign_ins.close(min(seconds, CLOSING_SECONDS))
        if self.worker is not None:
            await self.worker.drain(seconds)
            self.worker = None

    async def close(self) -> None:
        """End; what is still running is given back at once."""
        await self.drain(0)
        self.streams.stop()
        await self._stack.aclose()
        await self.connections.close()
        await self.store.close()
        if self.way_out.made is not None:
            await self.way_out.made.close()
        if self.platform is not None:
            await self.platform.close()
        places: tuple[object, ...] = tuple(self.channels.values())
        for place in places:
            if isinstance(place, Closable):
                await place.close()


async def open_runtime(
    bot: Bot,
    settings: Settings,
    *,
    role: Role | str = Role.ALL,
    console: bool = False,
    clock: Clock | None = None,
    options: WorkerOptions | None = None,
) -> Runtime:
    """Open the store and put the parts together; nothing runs or listens yet.

    Raises: BadApp, NotReady (no encryption keys), BadKeyRing, KeysNotGiven, KeyMissing, KeyWrong, SchemaOutdated, Unavailable.
    """
    keys = keys_of(bot, settings)
    clock = clock or clock_of(settings)
    platform = console_of(settings.data / CONSOLE_FILE, clock) if console else None
    channels: list[Channel] = [*bot.channels, *([Console(platform)] if platform is not None else [])]
    bot.check(channels[len(bot.channels) :])
    if problems := address_problems(bot.connections.values(), settings.public_url):
        raise BadApp(tuple(problems))
    agents = {agent.name: ready(agent, model=_model(settings, agent.model)) for agent in bot.agents}
    store = open_store(settings.database_url, keys=keys, clock=clock, options=store_options(settings))
    await store.open()
    if platform is not None:
        await _check_console(platform, settings)
    streams = Streams(store, formats.UPCASTERS)
    leftovers = await _leftovers(store, settings, bot.registry)
    by_name = {channel.name: channel for channel in channels}
    answers = Answers(
        store=store,
        agents=agents,
        access=bot.access,
        people=People(channels=by_name),
        leftovers=leftovers,
        groups=bot.groups,
    )
    taker = Ingress(
        store=store,
        channels=by_name,
        agent_of={channel.name: bot.agent_of(channel.name) for channel in channels},
        answering=frozenset({Console.name}),
        answers=answers,
        deployment=settings.deployment,
        lifetime_ms=bot.lifetime_ms,
        keep_ms=bot.retention.keep_ms,
        message_bytes=bot.limits.message_bytes,
        leftovers=leftovers,
    )
    out = WayOut(bot, settings)
    connections = Connections(bot.connections, store=store, outgoing=out, public_url=settings.public_url)
    sign_ins = _sign_ins(store, connections, by_name, settings.dormant_before)
    prompts = Prompts(store=store, answers=answers, offer=None if sign_ins is None else sign_ins.offer)
    sessions = Sessions(
        store=store,
        streams=streams,
        prompts=prompts,
        agents=[agent.name for agent in bot.agents],
        deployment=settings.deployment,
        lifetime_ms=bot.lifetime_ms,
        keep_ms=bot.retention.keep_ms,
        message_bytes=bot.limits.message_bytes,
        leftovers=leftovers,
    )
    board = None
    if platform is not None:
        agent = bot.agent_of("console").capitalize()
        board = Board(platform=platform, store=store, streams=streams, taker=taker, answers=answers, agent=agent)
    return Runtime(
        bot=bot,
        settings=settings,
        role=Role(role),
        store=store,
        streams=streams,
        sessions=sessions,
        prompts=prompts,
        answers=answers,
        taker=taker,
        leftovers=leftovers,
        pulse=Pulse(store),
        agents=agents,
        channels=by_name,
        platform=platform,
        console=board,
        clock=clock,
        way_out=out,
        connections=connections,
        sign_ins=sign_ins,
        options=options or WorkerOptions(concurrency=settings.concurrency, blocked_limit=settings.blocked_seconds),
    )


def _sign_ins(store: Store, connections: Connections, channels: dict[str, Channel], dormant_before: int) -> SignIns | None:
    """What people sign in by, where there is something to sign in to."""
    if not connections.by_name:
        return None
    from bot.signins.signins import SignIns  # noqa: PLC0415 - an HTTP client, only where one is used

    return SignIns(store=store, connections=connections, channels=channels, dormant_before=dormant_before)


def keys_of(bot: Bot | None, settings: Settings) -> Keys:
    """Return what the store takes as keys: the bot's own, else the environment's. Raises: NotReady, BadKeyRing."""
    if bot is not None and bot.keys is not None:
        return bot.keys
    if settings.encryption_keys is None:
        raise NotReady("MOORINGS_ENCRYPTION_KEYS is not set; `moorings keys new` prints a key.")
    return KeyRing.parse(settings.encryption_keys)


async def _leftovers(store: Store, settings: Settings, registry: Registry) -> Leftovers:
    """What this process can read, and from when on it looks who else can."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = fingerprint(version(), settings.deployment, python, registry.fingerprint)
    abilities = Abilities(code=code, since=settings.dormant_before, workflows=registry.names)
    strandings = Strandings(store=store, abilities=abilities, since=await store.now())
    return Leftovers(store=store, strandings=strandings, dormant_before=settings.dormant_before)


async def _check_console(platform: ConsolePlatform, settings: Settings) -> None:
    try:
        await platform.version()
    except ChannelError as error:
        reason = error.__cause__ or error
        path = settings.data / CONSOLE_FILE
        raise NotReady(
            f"{path} can't be opened as the console's file ({reason}); move it away to begin with a new one."
        ) from error


def store_options(settings: Settings) -> StoreOptions:
    """Say how the environment wants the database to be used."""
    return StoreOptions(namespace=settings.namespace, pool=settings.pool, listen_url=settings.listen_url, pooler=settings.pooler)


def _model(settings: Settings, model: object) -> str | None:
    """MOORINGS_MODEL takes the place of the scripted model; an author's own choice stays."""
    return settings.model if model == "scripted" else None
