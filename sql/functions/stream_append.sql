-- stream_append: many appends to many streams in one transaction, each with its
-- own outcome.
--
-- Groups (p_*): plain appends, one element a stream, each stream at most once;
-- answered by one row a group, whose tail is the position after all of it.
-- Specials (s_*): appends with a producer (id, epoch, seq), a Stream-Seq, a
-- close, or a write token (consumer, epoch, wake); answered by one row each.
-- internal = a trusted caller inside the gateway, who may append to guarded
-- streams; actionable = this append asks for the entity's attention.
-- Types are media types in lower case without parameters. Payloads of JSON
-- streams are flattened messages joined by commas; stamps see messages.stamps.
--
-- Outcomes: appended | duplicate (a producer's repeat; a close of a closed
-- stream) | busy (locked by somebody else: call again with p_wait and the
-- appends of one stream) | not_found | gone | closed | content_type | seq |
-- producer_gap | producer_fenced | producer_epoch_seq (a new epoch begins at 0)
-- | guarded (no right to append here) | token_stale | lease_expired.
-- producer_epoch and producer_seq are the last accepted ones, -1 for none.
create or replace function rouse.stream_append(
    p_services integer[], p_paths text[], p_types text[], p_internal boolean[], p_actionable boolean[], p_bytes bigint[],
    p_group integer[], p_rel bigint[], p_payloads bytea[], p_counts integer[], p_stamps text[],
    s_services integer[], s_paths text[], s_types text[], s_internal boolean[], s_actionable boolean[],
    s_payloads bytea[], s_counts integer[], s_stamps text[],
    s_producers text[], s_epochs bigint[], s_seqs bigint[], s_stream_seqs text[], s_closes boolean[],
    s_consumers bigint[], s_claim_epochs bigint[], s_wakes uuid[],
    p_wait boolean)
returns table (special boolean, ord integer, outcome text, stream_id bigint, tail bigint, closed boolean,
               content_type text, producer_epoch bigint, producer_seq bigint)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _stream_append(
        p_services, p_paths, p_types, p_internal, p_actionable, p_bytes,
        p_group, p_rel, p_payloads, p_counts, p_stamps,
        s_services, s_paths, s_types, s_internal, s_actionable, s_payloads, s_counts, s_stamps,
        s_producers, s_epochs, s_seqs, s_stream_seqs, s_closes, s_consumers, s_claim_epochs, s_wakes,
        p_wait, null);
end
$$;
comment on function rouse.stream_append is 'Appends to many streams in one transaction; one outcome a group and a special.';
