"""Models and devices: shapes, data sheets, and the catalogues of both."""
