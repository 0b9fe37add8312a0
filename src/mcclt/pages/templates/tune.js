addEventListener("DOMContentLoaded", () => {
  setUpTheme();
  setUpCopying();
});
