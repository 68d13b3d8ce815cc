-- compat: safe
-- Every registration of an observer is repeating: no call ever made one that is told once only. A gateway of before that
-- still runs finds no function to look for observers with; what it passes over stays behind for the next one.

drop function if exists rouse.observe_take(bigint, integer, integer);
drop index rouse.observers_registration_key;
alter table rouse.observers drop column one_shot;
create unique index observers_registration_key on rouse.observers
    (subscriber_url, source_path, kind, md5(condition), debounce_ms, timeout_ms, (coalesce(manifest_key, '')), service_id);
