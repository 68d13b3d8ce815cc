-- entity_display_list: what a UI says about each of some entities.
create or replace function rouse.entity_display_list(p_service_id integer, p_urls text[]) returns table (url text, code text, display text)
language sql stable
set search_path = rouse, pg_temp
set enable_seqscan = off
as $$
    select v.url, v.code, v.display
      from unnest(p_urls) u(url)
     cross join lateral (select d.url, d.code, d.display from entity_display d where d.service_id = p_service_id and d.url = u.url) v
$$;
comment on function rouse.entity_display_list(integer, text[]) is 'What a UI says about each of some entities.';
