CREATE TABLE moor_address (
	channel TEXT NOT NULL, 
	address TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	claimed_at BIGINT NOT NULL, 
	PRIMARY KEY (channel, address)
);
CREATE TABLE moor_admission (
	source TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	submission_id TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	created BIGINT DEFAULT 0 NOT NULL, 
	turn_id TEXT, 
	outcome TEXT, 
	detail BLOB, 
	reply_step BIGINT, 
	at BIGINT NOT NULL, 
	done_at BIGINT, 
	PRIMARY KEY (source, "key")
);
CREATE TABLE moor_alembic (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT moor_alembic_pkc PRIMARY KEY (version_num)
);
INSERT INTO "moor_alembic" VALUES('0007_pre_open_prompts');
CREATE TABLE moor_audit (
	n BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	act TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	prompt_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	requester TEXT NOT NULL, 
	asked TEXT NOT NULL, 
	asked_at BIGINT NOT NULL, 
	shown TEXT NOT NULL, 
	principal TEXT, 
	via TEXT NOT NULL, 
	place TEXT NOT NULL, 
	option_id TEXT, 
	outcome TEXT, 
	reason TEXT, 
	prev TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (n)
);
CREATE TABLE moor_claim (
	"key" TEXT NOT NULL, 
	claim_id TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	operation TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	done_at BIGINT, 
	done_run TEXT, 
	value BLOB, 
	PRIMARY KEY ("key")
);
CREATE TABLE moor_command (
	run_id TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	body BLOB NOT NULL, 
	submission_id TEXT NOT NULL, 
	principal TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	taken_step BIGINT, 
	PRIMARY KEY (run_id, seq)
);
CREATE TABLE moor_event (
	run_id TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	idx BIGINT, 
	type TEXT NOT NULL, 
	body BLOB NOT NULL, 
	refs TEXT, 
	attempt BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (run_id, seq)
);
CREATE TABLE moor_interaction (
	run_id TEXT NOT NULL, 
	interaction_id TEXT NOT NULL, 
	prompt_id TEXT NOT NULL, 
	option_id TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	principal TEXT NOT NULL, 
	name TEXT NOT NULL, 
	via TEXT NOT NULL, 
	body BLOB NOT NULL, 
	note BLOB, 
	due_at BIGINT NOT NULL, 
	owner TEXT, 
	epoch BIGINT DEFAULT 0 NOT NULL, 
	attempts BIGINT DEFAULT 0 NOT NULL, 
	status TEXT, 
	reason TEXT, 
	at BIGINT NOT NULL, place TEXT DEFAULT '' NOT NULL, override BIGINT DEFAULT 0 NOT NULL, aside BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (run_id, interaction_id)
);
CREATE TABLE moor_lane (
	channel TEXT NOT NULL, 
	address TEXT NOT NULL, 
	seq BIGINT DEFAULT 0 NOT NULL, 
	done_seq BIGINT DEFAULT 0 NOT NULL, 
	due_at BIGINT, 
	owner TEXT, 
	epoch BIGINT DEFAULT 0 NOT NULL, 
	lease_until BIGINT, 
	PRIMARY KEY (channel, address)
);
CREATE TABLE moor_outbox (
	run_id TEXT NOT NULL, 
	delivery_id TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	address TEXT NOT NULL, 
	lane_seq BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	prompt_id TEXT, 
	edit_of TEXT, 
	state TEXT NOT NULL, 
	ref TEXT, 
	attempts BIGINT DEFAULT 0 NOT NULL, 
	last_error TEXT, 
	at BIGINT NOT NULL, 
	done_at BIGINT, 
	PRIMARY KEY (run_id, delivery_id)
);
CREATE TABLE moor_participant (
	run_id TEXT NOT NULL, 
	principal TEXT NOT NULL, 
	joined_at BIGINT NOT NULL, 
	PRIMARY KEY (run_id, principal)
);
CREATE TABLE moor_prompt (
	run_id TEXT NOT NULL, 
	prompt_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	step_n BIGINT NOT NULL, 
	call_id TEXT, 
	body BLOB NOT NULL, 
	requester TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	created_seq BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	outcome TEXT, 
	option_id TEXT, 
	settled_by TEXT, 
	settled_name TEXT, 
	settled_via TEXT, 
	settled_at BIGINT, 
	settled_seq BIGINT, 
	note BLOB, quorum BIGINT DEFAULT 1 NOT NULL, answerers TEXT DEFAULT '[]' NOT NULL, asked TEXT DEFAULT '' NOT NULL, remind_at BIGINT, level BIGINT DEFAULT 0 NOT NULL, group_id TEXT, 
	PRIMARY KEY (run_id, prompt_id)
);
CREATE TABLE moor_record (
	run_id TEXT NOT NULL, 
	step_n BIGINT NOT NULL, 
	"key" TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	input_hash TEXT NOT NULL, 
	body BLOB NOT NULL, 
	attempt BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (run_id, step_n, "key")
);
CREATE TABLE moor_revision (
	name TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "moor_revision" VALUES('0001_pre_spine');
INSERT INTO "moor_revision" VALUES('0002_pre_core');
INSERT INTO "moor_revision" VALUES('0003_pre_versions');
INSERT INTO "moor_revision" VALUES('0004_pre_claims');
INSERT INTO "moor_revision" VALUES('0005_pre_prompts');
INSERT INTO "moor_revision" VALUES('0006_pre_vault');
INSERT INTO "moor_revision" VALUES('0007_pre_open_prompts');
CREATE TABLE moor_run (
	run_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	status TEXT NOT NULL, 
	phase TEXT NOT NULL, 
	creator TEXT NOT NULL, 
	session_key BLOB NOT NULL, 
	header BLOB NOT NULL, 
	spec_version BIGINT NOT NULL, 
	deployment TEXT NOT NULL, 
	turn_id TEXT, 
	inbox_seq BIGINT DEFAULT 0 NOT NULL, 
	cancel_seq BIGINT DEFAULT 0 NOT NULL, 
	event_seq BIGINT DEFAULT 0 NOT NULL, 
	event_index BIGINT DEFAULT 0 NOT NULL, 
	wake_at BIGINT, 
	owner TEXT, 
	epoch BIGINT DEFAULT 0 NOT NULL, 
	lease_until BIGINT, 
	step_no BIGINT DEFAULT 0 NOT NULL, 
	step_started_at BIGINT, 
	attempt BIGINT DEFAULT 0 NOT NULL, 
	charged BIGINT DEFAULT 0 NOT NULL, 
	crashes BIGINT DEFAULT 0 NOT NULL, 
	progressed BIGINT DEFAULT 0 NOT NULL, 
	interrupted BIGINT DEFAULT 0 NOT NULL, 
	last_error TEXT, 
	retry_at BIGINT, 
	created_at BIGINT NOT NULL, 
	last_at BIGINT NOT NULL, 
	deadline_at BIGINT, 
	ended_at BIGINT, 
	end_reason TEXT, kind TEXT DEFAULT 'session' NOT NULL, keep_ms BIGINT, purge_at BIGINT, purged_at BIGINT, redactions BIGINT DEFAULT 0 NOT NULL, stranded TEXT, stranded_code TEXT, 
	PRIMARY KEY (run_id)
);
CREATE TABLE moor_step (
	run_id TEXT NOT NULL, 
	n BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	spec_version BIGINT NOT NULL, 
	deployment TEXT NOT NULL, 
	input BLOB NOT NULL, 
	output BLOB NOT NULL, 
	started_at BIGINT NOT NULL, 
	completed_at BIGINT NOT NULL, 
	PRIMARY KEY (run_id, n)
);
CREATE TABLE moor_vault (
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	sealed BLOB NOT NULL, 
	about BLOB NOT NULL, 
	due_at BIGINT, 
	expires_at BIGINT, 
	holder TEXT, 
	held_until BIGINT, 
	created_at BIGINT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE moor_vote (
	run_id TEXT NOT NULL, 
	prompt_id TEXT NOT NULL, 
	principal TEXT NOT NULL, 
	option_id TEXT NOT NULL, 
	at BIGINT NOT NULL, name TEXT DEFAULT '' NOT NULL, via TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (run_id, prompt_id, principal)
);
CREATE TABLE moor_worker (
	owner TEXT NOT NULL, 
	deployment TEXT NOT NULL, 
	min_readable BIGINT NOT NULL, 
	current BIGINT NOT NULL, 
	host TEXT NOT NULL, 
	pid BIGINT NOT NULL, 
	started_at BIGINT NOT NULL, 
	heartbeat BIGINT NOT NULL, code TEXT DEFAULT '' NOT NULL, workflows TEXT DEFAULT '[]' NOT NULL, revision TEXT DEFAULT '' NOT NULL, gone_at BIGINT, 
	PRIMARY KEY (owner)
);
CREATE INDEX moor_run_due ON moor_run (wake_at) WHERE wake_at IS NOT NULL AND owner IS NULL;
CREATE INDEX moor_run_owner ON moor_run (owner) WHERE owner IS NOT NULL;
CREATE INDEX moor_address_run ON moor_address (run_id);
CREATE INDEX moor_admission_open ON moor_admission (run_id, seq) WHERE outcome IS NULL;
CREATE UNIQUE INDEX moor_admission_submission ON moor_admission (submission_id);
CREATE INDEX moor_command_new ON moor_command (run_id, seq) WHERE taken_step IS NULL;
CREATE INDEX moor_event_visible ON moor_event (run_id, idx) WHERE idx IS NOT NULL;
CREATE UNIQUE INDEX moor_prompt_id ON moor_prompt (prompt_id);
CREATE INDEX moor_prompt_open ON moor_prompt (run_id, created_at) WHERE outcome IS NULL;
CREATE INDEX moor_interaction_due ON moor_interaction (due_at) WHERE status IS NULL;
CREATE INDEX moor_lane_due ON moor_lane (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX moor_lane_owner ON moor_lane (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX moor_outbox_delivery ON moor_outbox (delivery_id);
CREATE INDEX moor_outbox_lane ON moor_outbox (channel, address, lane_seq) WHERE state = 'pending';
CREATE INDEX moor_outbox_prompt ON moor_outbox (prompt_id) WHERE prompt_id IS NOT NULL;
CREATE INDEX moor_run_purge ON moor_run (purge_at) WHERE purge_at IS NOT NULL AND purged_at IS NULL;
CREATE INDEX moor_claim_done ON moor_claim (done_run) WHERE done_run IS NOT NULL;
CREATE INDEX moor_audit_run ON moor_audit (run_id, n);
CREATE INDEX moor_audit_prompt ON moor_audit (prompt_id, n);
CREATE INDEX moor_vault_owner ON moor_vault (owner, name);
CREATE INDEX moor_vault_kind ON moor_vault (kind, name);
CREATE INDEX moor_vault_due ON moor_vault (kind, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX moor_vault_expired ON moor_vault (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX moor_prompt_time ON moor_prompt (substr(run_id, length(run_id) - 25, 10)) WHERE outcome IS NULL;
CREATE INDEX moor_prompt_asked ON moor_prompt (created_at, prompt_id) WHERE outcome IS NULL;
