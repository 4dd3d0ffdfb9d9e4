// The panel's button that has the demo's account provider refuse what it granted to the speaker.

import { post } from "./api.js";
import { announce, byId } from "./dom.js";
import { clockTime } from "./time.js";

const speaker = (state) => state.cast.find((member) => member.id === state.viewer);

export function drawRevoking(state) {
  byId("revoking").hidden = !state.revokes;
  byId("revoke-whose").textContent = speaker(state) ? `of ${speaker(state).name}` : "";
  byId("revoke").setAttribute("aria-disabled", String(!state.online));
}

export function setUpRevoking(state) {
  byId("revoke").addEventListener("click", async () => {
    const whose = speaker(state);
    if (!whose || byId("revoke").getAttribute("aria-disabled") === "true") return;
    const note = byId("revoke-note");
    try {
      const { revoked } = await post("tokens/revoke", { author: whose.id });
      note.textContent = revoked > 0
        ? `Revoked at ${clockTime(Date.now())}: ${whose.name}’s demo account is not taken any more. The next call asks to sign in once.`
        : `${whose.name} has not signed in to the demo account, so there is nothing to revoke.`;
    } catch (error) {
      note.textContent = `${error.message} Nothing was revoked.`;
    }
    announce(note.textContent);
  });
}
