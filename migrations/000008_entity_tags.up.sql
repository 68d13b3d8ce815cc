-- compat: safe
-- transaction: none
create index concurrently if not exists entities_tags_idx on rouse.entities using gin (tags jsonb_path_ops);
