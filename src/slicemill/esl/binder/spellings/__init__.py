"""Other spellings: what people bring from other systems, put into ESL's own words before it is bound."""
