-- The tables of sessions. These statements can be repeated.

-- A log: a session (sub is empty) or a part of it. The row is the lock of its records.
create table if not exists parley_logs (
	id       bigint generated always as identity primary key,
	project  text        not null,
	session  text        not null,
	sub      text        not null,
	next     bigint      not null default 0, -- the number of the next record
	size     bigint      not null default 0, -- in bytes
	modified timestamptz not null default clock_timestamp(),
	summary  bytea,                          -- what a list shows of it
	unique (project, session, sub)
);
create index if not exists parley_logs_session on parley_logs (session);

-- The records, byte for byte.
create table if not exists parley_records (
	log    bigint not null references parley_logs on delete cascade,
	seq    bigint not null,
	uuid   bytea,
	record bytea  not null,
	primary key (log, seq)
);
create unique index if not exists parley_records_uuid on parley_records (log, uuid) where uuid is not null;

-- Who writes a session, until when.
create table if not exists parley_leases (
	session text        primary key,
	token   bytea       not null,
	expires timestamptz not null
);
