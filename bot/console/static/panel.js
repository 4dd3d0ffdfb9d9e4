// The panel: what can be done to the demo while it works, and what came of it.

import { post } from "./api.js";
import { announce, byId } from "./dom.js";
import { clockTime, dated, now, setAhead, span } from "./time.js";

const speaker = (state) => state.cast.find((member) => member.id === state.viewer);

export function drawPanel(state) {
  const { state: worker, pid } = state.worker;
  byId("worker").textContent = worker === "restarting" ? "restarting" : pid ? `pid ${pid}` : "SIGKILL";
  byId("move").hidden = !state.moves;
  const { runs, next, leaves, stage } = state.deployment;
  byId("deploy").hidden = !state.deploys || !runs;
  byId("deploy-name").textContent = `Deploy ${next}`;
  byId("deploy-state").textContent = stage === "starting" ? `${next} starts` : stage === "draining" ? `${leaves} drains` : "rolling";
  byId("revoke").hidden = !state.revokes;
  byId("revoke-whose").textContent = speaker(state) ? `of ${speaker(state).name}` : "";
  setOff("kill", worker === "restarting" || !state.online);
  setOff("move", !state.online);
  setOff("deploy", stage !== null || !state.online);
  setOff("revoke", !state.online);
  const ahead = byId("ahead");
  ahead.hidden = state.ahead === 0;
  const words = `The demo’s clock is ${span(state.ahead)} ahead: it is ${dated(now())} here.`;
  if (!ahead.hidden && ahead.textContent !== words) ahead.textContent = words;
}

/** Take over how far ahead the clock is; true when that is news. */
export function tookClock(state, ahead = 0) {
  const news = state.ahead !== ahead;
  state.ahead = ahead;
  setAhead(ahead);
  return news;
}

/** Take over how a deploy goes on, and say so at its turns. */
export function tookDeployment(state, change) {
  const before = state.deployment;
  state.deployment = change;
  if (!before.runs) return;
  const words = change.failed && change.failed !== before.failed ? `${change.failed} ${change.runs} works on.`
    : change.runs !== before.runs ? `${change.runs} takes what comes. ${change.leaves} finishes its work or hands it over.`
      : before.stage === "draining" && change.stage === null ? `${change.runs} is deployed. Cards that wait are as they were: a click goes on with them.`
        : "";
  if (words) say(words);
}

function say(words) {
  byId("panel-note").textContent = words;
  announce(words);
}

export function setUpPanel(state, { draw }) {
  press("kill", "The worker was not killed.", async () => {
    const { pid } = await post("worker/kill");
    return `Killed ${pid} at ${clockTime(now())}. The next one goes on from what was recorded.`;
  });
  press("move", "The clock was not moved.", async () => {
    const { ahead_ms: ahead } = await post("clock");
    tookClock(state, ahead);
    return "Three days have passed. What was due by now comes due: reminders, expiries, durable sleeps.";
  });
  press("deploy", "Nothing was deployed.", async () => {
    const { deployment } = await post("deployments");
    return `${deployment} starts beside ${state.deployment.runs}.`;
  });
  press("revoke", "Nothing was revoked.", async () => {
    const whose = speaker(state);
    const { revoked } = await post("tokens/revoke", { author: whose.id });
    return revoked > 0
      ? `Revoked at ${clockTime(now())}: ${whose.name}’s demo account is not taken any more. The next call asks to sign in once.`
      : `${whose.name} has not signed in to the demo account, so there is nothing to revoke.`;
  });

  function press(id, inVain, act) {
    byId(id).addEventListener("click", async () => {
      if (byId(id).getAttribute("aria-disabled") === "true" || !speaker(state)) return;
      try {
        say(await act());
      } catch (error) {
        say(`${error.message} ${inVain}`);
      }
      draw();
    });
  }
}

const setOff = (id, off) => byId(id).setAttribute("aria-disabled", String(off));
