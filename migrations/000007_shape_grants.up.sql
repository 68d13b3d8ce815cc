-- compat: safe
-- Grants are synced to whom they are given, and a change of one tells the shapes of its subject to fetch anew:
-- for that the log has to say whose grant it was.

alter table rouse.entity_effective_permissions replica identity full;
alter table rouse.entity_type_grants replica identity full;
alter publication rouse_rows add table rouse.entity_effective_permissions, rouse.entity_type_grants;
